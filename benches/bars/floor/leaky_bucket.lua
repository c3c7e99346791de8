--[[
  KEYS[1]  packed: last (microseconds), water
  ARGV     capacity, amount, window (microseconds), cost
  returns  allowed, remaining, retry, reset (microseconds)
]]
local capacity, amount, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local rate = amount / window
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local water = 0
local raw = redis.call('GET', KEYS[1])
if raw then
  local last, stored = struct.unpack('<dd', raw)
  water = math.max(0, stored - math.max(0, now - last) * rate)
end
if water + cost > capacity then
  return {0, math.floor(capacity - water), math.ceil((water + cost - capacity) / rate), math.ceil(water / rate)}
end
water = water + cost
local reset = math.ceil(water / rate)
redis.call('SET', KEYS[1], struct.pack('<dd', now, water), 'PX', math.ceil(reset / 1000))
return {1, math.floor(capacity - water), 0, reset}
