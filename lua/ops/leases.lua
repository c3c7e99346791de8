--[[
  Renews or ends leases of concurrency rules. Each line stands for itself, so one text serves any number of them.

  KEYS     one for each rule
  ARGV[1]  as for acquire.lua, with the arguments of algorithms/concurrency.lua for each rule; spend: 1 renew, 0 end
  returns  as acquire.lua: retry is 0 where the lease is held, or ended
           or now alone: the call came later than not_after and nothing was changed

  A lease that has expired or is not there is granted anew if there is the room it needs, which stands in place of its cost. Ending one tells nothing of how the rule stands.
]]
--@ each
local answer = {now}
for line = 1, #KEYS do
  local key = KEYS[line]
  local limit, lease, need, id = unpack('<dddc8', ARGV[1], 32 * line + 9)
  local remaining, retry, reset = 0, 0, 0
  local kept = pcall('ZCARD', key)
  if type(kept) == 'table' and not kept.err:find('WRONGTYPE') then return kept end
  if spend == 0 then
    if type(kept) == 'number' then call('ZREM', key, id) end
  else
    local gone, used, held = 0, 0, false
    if type(kept) == 'table' then
      call('DEL', key)
    elseif kept > 0 then
      gone = call('ZCOUNT', key, '-inf', now)
      used = kept - gone
      local expires = call('ZSCORE', key, id)
      held = expires and expires - now > 0
    end
    if held or used + need <= limit then
      if gone > 0 then call('ZREMRANGEBYSCORE', key, '-inf', now) end
      used = used + call('ZADD', key, now + lease, id)
      -- Others may have longer leases.
      local ttl = (lease - lease % 1000) / 1000 + margin
      if call('PTTL', key) < ttl then call('PEXPIRE', key, ttl) end
    elseif need > limit then
      retry = -1
    else
      retry = call('ZRANGE', key, now + 1, '+inf', 'BYSCORE', 'LIMIT', used + need - limit - 1, 1, 'WITHSCORES')[2] - now
    end
    if used < limit then remaining = limit - used end
    if used > 0 then reset = lease end
  end
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = remaining, retry, reset
end
return answer
