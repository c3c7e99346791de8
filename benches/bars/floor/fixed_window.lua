--[[
  KEYS[1]  packed: start (microseconds), count
  ARGV     limit, window (microseconds), cost
  returns  allowed, remaining, retry, reset (microseconds)
]]
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local start, count = now - now % window, 0
local raw = redis.call('GET', KEYS[1])
if raw then
  local stored_start, stored_count = struct.unpack('<dd', raw)
  if stored_start == start then count = stored_count end
end
local reset = start + window - now
if count + cost > limit then
  return {0, limit - count, reset, reset}
end
count = count + cost
redis.call('SET', KEYS[1], struct.pack('<dd', start, count), 'PX', math.ceil(reset / 1000))
return {1, limit - count, 0, reset}
