--[[
  Makes many changes without judging, each once: gives back what was charged, or charges what turned out to be due.

  KEYS     one for each change, then the record of each in the same order, in the hash slot of its key, then the counts of those
           tenants that have a part in a change, in the same order
  ARGV[1]  as for acquire.lua with spend 0; then how many changes there are; then for each algorithm in turn, once for changes that a
           tenant has a part in and once for others, how many there are of them, and for each of these the arguments of its rule, the
           receipt of the charge, and 1 if it is owed, 0 if it is given back; then of the tenant's count the arguments and the receipt
  ARGV[2]  milliseconds that the records stay
  returns  now, how many changes were made, and of those that began a ban which ones they were, counted from one
           or now alone: the call came later than not_after and nothing was changed

  The assembler puts a loop around the parts of each algorithm. Should a change fail, those before it stay made, and asked for again
  they are not made twice.
]]
--@ begin
local changes, at = unpack('<d', ARGV[1], 41)
local i, tenant, made, told = 0, 2 * changes, 0, {now, 0}
--@ count
local count
count, at = unpack('<d', ARGV[1], at)
for _ = 1, count do
  i = i + 1
--@ tenant
  tenant = tenant + 1
--@ record
  local granted = not call('GET', KEYS[changes + i])
  if granted then
    made = made + 1
    call('SET', KEYS[changes + i], '', 'NX', 'PX', ARGV[2])
--@ end
told[2] = made
return told
