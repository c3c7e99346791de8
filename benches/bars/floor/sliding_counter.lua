--[[
  KEYS[1]  packed: start (microseconds), current count, previous count
  ARGV     limit, window (microseconds), cost
  returns  allowed, remaining, retry, reset (microseconds)
]]
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local start, current, previous = now, 0, 0
local raw = redis.call('GET', KEYS[1])
if raw then
  start, current, previous = struct.unpack('<ddd', raw)
  if now - start >= 2 * window then
    start, current, previous = now, 0, 0
  elseif now - start >= window then
    start, current, previous = start + window, 0, current
  end
end
local left = start + window - now
local used = current + math.ceil(previous * left / window)
if used + cost > limit then
  local retry
  local room = limit - current - cost
  if room < 0 then
    -- Not before the next window, where the current count fades.
    retry = left + window - math.floor((limit - cost) * window / current)
  else
    retry = left - math.floor(room * window / previous)
  end
  return {0, math.max(0, limit - used), retry, left}
end
current = current + cost
redis.call('SET', KEYS[1], struct.pack('<ddd', start, current, previous), 'PX', math.ceil((left + window) / 1000))
return {1, limit - used - cost, 0, left}
