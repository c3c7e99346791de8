--[[
  Leaky bucket: the water at the time of the last charge. Specified by src/algorithm/leaky_bucket.rs.

  KEYS[N]  string: kind 4, last (microseconds), water (parts), and the rate: parts a tick, parts of a unit, power of ten
           of the tick
  capacity and cost are in parts; t_N is in ticks
]]
--@ args tick power per_tick per_unit capacity cost
--@ names t water
--@ judge
do
  local raw = pcall('GET', KEYS[N])
  t_N, water_N, repaired_N = (now - now % tick_N) / tick_N, 0, false
  if raw and #raw == 28 then
    local kind, last, water, per_tick, per_unit, power = unpack('<BI7i7I6I6B', raw)
    if kind == 4 then
      local leak = 0
      if last > now then
        if last - now <= tolerance then t_N = (last - last % tick_N) / tick_N else repaired_N = true end
      end
      if per_tick == per_tick_N and per_unit == per_unit_N and power == power_N then
        if last <= now then leak = (t_N - (last - last % tick_N) / tick_N) * per_tick_N end
      else
        -- Another rate: leaked at the old one until now.
        local tick = 10 ^ power
        if last <= now then water = water - ((now - now % tick) / tick - (last - last % tick) / tick) * per_tick end
        if water < 0 then water = 0 end
        water = math.ceil(water / per_unit * per_unit_N)
        repaired_N = water > 0
      end
      if water > capacity_N then water = capacity_N end
      if leak < water then water_N = water - leak end
    end
  elseif raw and raw.err and not raw.err:find('WRONGTYPE') then
    return raw
  end
end
--@ wait
retry_N = 0
if need_N > capacity_N then
  retry_N = -1
elseif water_N > capacity_N - need_N then
  local excess = water_N - (capacity_N - need_N) + per_tick_N - 1
  retry_N = (t_N + (excess - excess % per_tick_N) / per_tick_N) * tick_N - now
end
--@ charge
water_N = water_N + cost_N
--@ clamp
if cost_N > remaining_N * per_unit_N then cost_N = remaining_N * per_unit_N end
--@ give
if repaired_N then cost_N = 0 end
do
  -- What was forgotten since may have been this charge.
  local kept = ((receipt_N - receipt_N % tick_N) / tick_N - t_N) * per_tick_N
  if kept < 0 then kept = 0 end
  if cost_N > kept then cost_N = kept end
end
if cost_N > water_N then cost_N = water_N end
water_N = water_N - cost_N
--@ standing
do
  local room = capacity_N - water_N
  remaining_N, reset_N = (room - room % per_unit_N) / per_unit_N, 0
  if water_N > 0 then
    local left = water_N + per_tick_N - 1
    reset_N = (t_N + (left - left % per_tick_N) / per_tick_N) * tick_N - now
  end
end
--@ write
call('SET', KEYS[N], pack('<BI7i7I6I6B', 4, t_N * tick_N, water_N, per_tick_N, per_unit_N, power_N), 'PX', (reset_N - reset_N % 1000) / 1000 + margin)
