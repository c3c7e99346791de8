--[[
  KEYS[1]  the time (microseconds) at which everything used has been earned back
  ARGV     microseconds a unit, burst, cost
  returns  allowed, remaining, retry, reset (microseconds)
]]
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local dry = tonumber(redis.call('GET', KEYS[1]) or now)
if dry < now then dry = now end
local after = dry + cost * interval
local excess = after - now - burst * interval
if excess > 0 then
  return {0, math.floor(burst - (dry - now) / interval), excess, dry - now}
end
redis.call('SET', KEYS[1], after, 'PX', math.ceil((after - now) / 1000))
return {1, math.floor(burst - (after - now) / interval), 0, after - now}
