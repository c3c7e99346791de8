--[[
  Concurrency: leases that expire. Specified by src/algorithm/concurrency.rs.

  KEYS[N]  sorted set: names of leases by when they expire (microseconds)

  Expired leases are removed with the next write. gone_N counts them; -1: the key is of another kind. A lease that expires
  later than a new one would, by more than the tolerance, is moved to where a new one expires.
]]
--@ args limit lease cost id
--@ names used gone
--@ judge
do
  local held = pcall('ZCARD', KEYS[N])
  used_N, gone_N, repaired_N = 0, 0, false
  if type(held) == 'table' then
    if not held.err:find('WRONGTYPE') then return held end
    gone_N = -1
  elseif held > 0 then
    used_N = call('ZCOUNT', KEYS[N], now + 1, now + lease_N + tolerance)
    if used_N < held then
      gone_N = call('ZCOUNT', KEYS[N], '-inf', now)
      repaired_N = used_N + gone_N < held
      used_N = held - gone_N
    end
  end
end
--@ wait
retry_N = 0
if need_N > limit_N then
  retry_N = -1
elseif need_N > 0 and used_N + need_N > limit_N then
  local excess = used_N + need_N - limit_N
  local freed = call('ZRANGE', KEYS[N], now + 1, '+inf', 'BYSCORE', 'LIMIT', excess - 1, 1, 'WITHSCORES')
  retry_N = freed[2] - now
  if repaired_N and retry_N > lease_N then retry_N = lease_N end
end
--@ charge
if cost_N > 0 then
  -- First where the set is made anew: a user who may not do it would leave one that stays for ever.
  if used_N == 0 then call('PEXPIRE', KEYS[N], margin) end
  if gone_N > 0 then call('ZREMRANGEBYSCORE', KEYS[N], '-inf', now) elseif gone_N < 0 then call('DEL', KEYS[N]) end
  used_N = used_N + call('ZADD', KEYS[N], now + lease_N, id_N)
end
--@ clamp
if cost_N > remaining_N then cost_N = remaining_N end
--@ give
if cost_N > 0 and gone_N >= 0 then
  local expires = call('ZSCORE', KEYS[N], id_N)
  if expires and expires - now > 0 then used_N = used_N - 1 end
  call('ZREM', KEYS[N], id_N)
end
cost_N = 0
--@ standing
remaining_N, reset_N = 0, 0
if used_N < limit_N then remaining_N = limit_N - used_N end
if used_N > 0 then reset_N = lease_N end
--@ write
if repaired_N then
  call('ZREMRANGEBYSCORE', KEYS[N], '-inf', now)
  for _, id in ipairs(call('ZRANGE', KEYS[N], now + lease_N + 1, '+inf', 'BYSCORE')) do
    call('ZADD', KEYS[N], now + lease_N, id)
  end
end
call('PEXPIRE', KEYS[N], (lease_N - lease_N % 1000) / 1000 + margin)
