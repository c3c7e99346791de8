--[[
  Judges every rule, then charges all of them or none. In one call, so that nobody comes between. A shadow
  rule that does not fit keeps no other from being charged, and is not charged itself.

  KEYS     one for each rule, then the counts of tenants, of each rule that is shared
  ARGV[1]  little-endian doubles: now (microseconds, or -1: the server's own clock), not_after, tolerance (microseconds),
           margin (milliseconds added to every TTL), spend (1, or 0 to judge only), then the arguments of each rule in turn
  ARGV[2]  only where there are shadow rules: a byte for each rule, '1' for a shadow, else '0'
  returns  now, then for each rule: remaining, retry (microseconds; 0 it fits, -1 it never will), reset (microseconds)
           and then for each tenant's count: reset
           or now alone: the call came later than not_after and nothing was judged

  The assembler binds the arguments, and between these sections puts the parts of each rule's algorithm. In
  those, granted says whether this rule is charged. What must be there for a rule to fit is need_N: an argument after the others
  where more must be left than the cost, else the cost itself.
]]
--@ begin
local call, pcall, unpack, pack = redis.call, redis.pcall, struct.unpack, struct.pack
--@ time
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if now > not_after then return {now} end
--@ write_if
if (granted and cost_N > 0) or (repaired_N and spend == 1) then
