--[[
  Token bucket: the level at the time of the last charge. Specified by src/algorithm/token_bucket.rs.

  KEYS[N]  string: kind 3, last (microseconds), level (parts; below zero they are owed), and the rate: parts a tick, parts of a unit, power of ten
           of the tick
  capacity and cost are in parts; t_N is in ticks
]]
--@ args tick power per_tick per_unit capacity cost
--@ names t level
--@ judge
do
  local raw = pcall('GET', KEYS[N])
  t_N, level_N, repaired_N = (now - now % tick_N) / tick_N, capacity_N, false
  if raw and #raw == 28 then
    local kind, last, level, per_tick, per_unit, power = unpack('<BI7i7I6I6B', raw)
    if kind == 3 then
      local gain = 0
      if last > now then
        if last - now <= tolerance then t_N = (last - last % tick_N) / tick_N else repaired_N = true end
      end
      if per_tick == per_tick_N and per_unit == per_unit_N and power == power_N then
        if last <= now then gain = (t_N - (last - last % tick_N) / tick_N) * per_tick_N end
      else
        -- Another rate: refilled at the old one until now.
        local tick = 10 ^ power
        if last <= now then level = level + ((now - now % tick) / tick - (last - last % tick) / tick) * per_tick end
        level, repaired_N = math.floor(level / per_unit * per_unit_N), true
        local lowest = 31622400000000 / tick_N * per_tick_N
        if lowest > 9007199254740991 - per_tick_N - capacity_N then lowest = 9007199254740991 - per_tick_N - capacity_N end
        if level < -lowest then level = -lowest end
      end
      if gain < capacity_N - level then level_N = level + gain end
    end
  elseif raw and raw.err and not raw.err:find('WRONGTYPE') then
    return raw
  end
end
--@ wait
retry_N = 0
if need_N > capacity_N then
  retry_N = -1
elseif need_N > level_N and need_N > 0 then
  local lack = need_N - level_N + per_tick_N - 1
  retry_N = (t_N + (lack - lack % per_tick_N) / per_tick_N) * tick_N - now
end
--@ charge
level_N = level_N - cost_N
--@ clamp
if cost_N > remaining_N * per_unit_N then cost_N = remaining_N * per_unit_N end
--@ owe
do
  local lowest = 31622400000000 / tick_N * per_tick_N
  if lowest > 9007199254740991 - per_tick_N - capacity_N then lowest = 9007199254740991 - per_tick_N - capacity_N end
  level_N = level_N - cost_N
  if level_N < -lowest then level_N = -lowest end
end
--@ give
if repaired_N then cost_N = 0 end
do
  -- What was forgotten since may have been this charge.
  local kept = ((receipt_N - receipt_N % tick_N) / tick_N - t_N) * per_tick_N
  if kept < 0 then kept = 0 end
  if cost_N > kept then cost_N = kept end
end
if cost_N > capacity_N - level_N then cost_N = capacity_N - level_N end
level_N = level_N + cost_N
--@ standing
remaining_N, reset_N = 0, 0
if level_N > 0 then remaining_N = (level_N - level_N % per_unit_N) / per_unit_N end
if level_N < capacity_N then
  local room = capacity_N - level_N + per_tick_N - 1
  reset_N = (t_N + (room - room % per_tick_N) / per_tick_N) * tick_N - now
  -- A burst that was raised matters for longer than its TTL: until the bucket is full.
  if retry_N > 0 and spend == 1 and call('PTTL', KEYS[N]) * 1000 < reset_N then
    call('PEXPIRE', KEYS[N], (reset_N - reset_N % 1000) / 1000 + margin)
  end
end
--@ write
call('SET', KEYS[N], pack('<BI7i7I6I6B', 3, t_N * tick_N, level_N, per_tick_N, per_unit_N, power_N), 'PX', (reset_N - reset_N % 1000) / 1000 + margin)
