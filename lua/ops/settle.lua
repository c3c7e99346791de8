--[[
  Changes what was counted without judging, once: takes what was admitted elsewhere, or gives back what was charged. In one
  call for all rules.

  KEYS     one for each rule, then the counts of those tenants that have a part in the change, in the order of their rules, then the
           record of the change, in the hash slot of the first
  ARGV[1]  as for acquire.lua, with spend 0
  ARGV[2]  milliseconds that the record stays
  returns  as acquire.lua, with every retry 0; if the change was made before, how the rules stand now
           or now alone: the call came later than not_after and nothing was changed

  To give back, each rule and each tenant's count has one more argument: the receipt of the charge. Where the rule was repaired, there is no telling what
  its charge has become, and nothing is given.

  The record is the first thing written. Should a write after it fail, the change is made in part, but never twice.
]]
--@ judged
local granted = not call('GET', KEYS[N])
--@ record
call('SET', KEYS[N], '', 'NX', 'PX', ARGV[2])
--@ write_if
if granted and (cost_N > 0 or repaired_N) then
