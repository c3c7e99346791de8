--[[
  KEYS[1]  packed: last (microseconds), level
  ARGV     capacity, amount, window (microseconds), cost
  returns  allowed, remaining, retry, reset (microseconds)
]]
local capacity, amount, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local rate = amount / window
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local level = capacity
local raw = redis.call('GET', KEYS[1])
if raw then
  local last, stored = struct.unpack('<dd', raw)
  level = math.min(capacity, stored + math.max(0, now - last) * rate)
end
if level < cost then
  return {0, math.floor(level), math.ceil((cost - level) / rate), math.ceil((capacity - level) / rate)}
end
level = level - cost
local reset = math.ceil((capacity - level) / rate)
redis.call('SET', KEYS[1], struct.pack('<dd', now, level), 'PX', math.ceil(reset / 1000))
return {1, math.floor(level), 0, reset}
