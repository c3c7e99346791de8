--[[
  A token bucket, a sliding counter and a fixed window in one call: all are charged, or none.

  KEYS     packed: last, level; packed: start, current, previous; packed: start, count
  ARGV     cost; capacity, amount, window; limit, window; limit, window (microseconds)
  returns  allowed, then for each: remaining, retry, reset (microseconds)
]]
local cost = tonumber(ARGV[1])
local capacity, rate = tonumber(ARGV[2]), tonumber(ARGV[3]) / tonumber(ARGV[4])
local counter_limit, counter_window = tonumber(ARGV[5]), tonumber(ARGV[6])
local limit, window = tonumber(ARGV[7]), tonumber(ARGV[8])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local level = capacity
local raw = redis.call('GET', KEYS[1])
if raw then
  local last, stored = struct.unpack('<dd', raw)
  level = math.min(capacity, stored + math.max(0, now - last) * rate)
end
local level_retry = 0
if level < cost then level_retry = math.ceil((cost - level) / rate) end

local start, current, previous = now, 0, 0
raw = redis.call('GET', KEYS[2])
if raw then
  start, current, previous = struct.unpack('<ddd', raw)
  if now - start >= 2 * counter_window then
    start, current, previous = now, 0, 0
  elseif now - start >= counter_window then
    start, current, previous = start + counter_window, 0, current
  end
end
local left = start + counter_window - now
local used = current + math.ceil(previous * left / counter_window)
local counter_retry = 0
if used + cost > counter_limit then
  local room = counter_limit - current - cost
  if room < 0 then
    counter_retry = left + counter_window - math.floor((counter_limit - cost) * counter_window / current)
  else
    counter_retry = left - math.floor(room * counter_window / previous)
  end
end

local window_start, count = now - now % window, 0
raw = redis.call('GET', KEYS[3])
if raw then
  local stored_start, stored_count = struct.unpack('<dd', raw)
  if stored_start == window_start then count = stored_count end
end
local window_reset = window_start + window - now
local window_retry = 0
if count + cost > limit then window_retry = window_reset end

local allowed = 0
if level_retry == 0 and counter_retry == 0 and window_retry == 0 then
  allowed, level, current, used, count = 1, level - cost, current + cost, used + cost, count + cost
  redis.call('SET', KEYS[1], struct.pack('<dd', now, level), 'PX', math.ceil((capacity - level) / rate / 1000))
  redis.call('SET', KEYS[2], struct.pack('<ddd', start, current, previous), 'PX', math.ceil((left + counter_window) / 1000))
  redis.call('SET', KEYS[3], struct.pack('<dd', window_start, count), 'PX', math.ceil(window_reset / 1000))
end
return {
  allowed,
  math.floor(level), level_retry, math.ceil((capacity - level) / rate),
  math.max(0, counter_limit - used), counter_retry, left,
  limit - count, window_retry, window_reset,
}
