--[[
  KEYS[1]  list of the times (microseconds) of everything admitted, oldest first; a cost of n is n entries
  ARGV     limit, window (microseconds), cost
  returns  allowed, remaining, retry, reset (microseconds)
]]
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local oldest = redis.call('LINDEX', KEYS[1], 0)
while oldest and tonumber(oldest) <= now - window do
  redis.call('LPOP', KEYS[1])
  oldest = redis.call('LINDEX', KEYS[1], 0)
end
local used = redis.call('LLEN', KEYS[1])
local reset = window
if oldest then reset = tonumber(oldest) + window - now end
if used + cost > limit then
  local frees = redis.call('LINDEX', KEYS[1], used + cost - limit - 1)
  return {0, limit - used, tonumber(frees) + window - now, reset}
end
for _ = 1, cost do redis.call('RPUSH', KEYS[1], now) end
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return {1, limit - used - cost, 0, reset}
