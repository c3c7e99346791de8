--[[
  Makes many changes without judging, each once: gives back what was charged, or charges what turned out to be due.

  KEYS     one for each change, then the record of each in the same order, in the hash slot of its key
  ARGV[1]  as for acquire.lua with spend 0; then for each algorithm in turn how many changes there are, and for each of these the
           arguments of its rule, the receipt of the charge, and 1 if it is owed, 0 if it is given back
  ARGV[2]  milliseconds that the records stay
  returns  now, how many changes were made, and of those that began a ban which ones they were, counted from one
           or now alone: the call came later than not_after and nothing was changed

  The assembler puts a loop around the parts of each algorithm. Should a change fail, those before it stay made, and asked for again
  they are not made twice.
]]
--@ begin
local at, i, made, changes, told = 41, 0, 0, #KEYS / 2, {now, 0}
--@ count
local count
count, at = unpack('<d', ARGV[1], at)
for _ = 1, count do
  i = i + 1
--@ record
  local granted = not call('GET', KEYS[changes + i])
  if granted then
    made = made + 1
    call('SET', KEYS[changes + i], '', 'NX', 'PX', ARGV[2])
--@ end
told[2] = made
return told
