--[[
  GCRA: the time at which everything used will have been earned back. Specified by src/algorithm/gcra.rs.

  KEYS[N]  one part a tick: decimal digits, the time (microseconds) followed by three digits of the pace; Redis keeps it as
           an integer, the smallest value there is
           else string: kind 5, time (microseconds), parts beyond it, parts a tick, parts of a unit, power of ten of the tick
  capacity and cost are in parts; t_N is in ticks, used_N in parts
]]
--@ args tick power per_tick per_unit capacity cost pace
--@ names t used
--@ judge
do
  local raw = pcall('GET', KEYS[N])
  t_N, used_N, repaired_N = (now - now % tick_N) / tick_N, 0, false
  if not raw then
    used_N = 0
  elseif raw.err then
    if not raw.err:find('WRONGTYPE') then return raw end
  elseif #raw < 21 then
    local dry, pace = tonumber(raw:sub(1, -4)), tonumber(raw:sub(-3))
    if dry and pace and dry > now then
      if pace == pace_N and per_tick_N == 1 then
        used_N = (dry - dry % tick_N) / tick_N - t_N
      else
        local place = (pace - pace % 16) / 16
        used_N = math.ceil((dry - now) / ((16 + pace % 16) * 2 ^ place / 16) * per_unit_N)
        repaired_N = true
      end
    end
  elseif #raw == 28 then
    local kind, dry, beyond, per_tick, per_unit, power = unpack('<BdI6I6I6B', raw)
    local tick = 10 ^ power
    local ticks = (dry - dry % tick) / tick - (now - now % tick) / tick
    if kind == 5 and ticks >= 0 then
      used_N = ticks * per_tick + beyond
      if per_tick ~= per_tick_N or per_unit ~= per_unit_N or power ~= power_N then
        repaired_N = used_N > 0
        used_N = math.ceil(used_N / per_unit * per_unit_N)
      end
    end
  end
  -- A peer whose clock is ahead may have written this.
  local ahead = math.min(math.ceil(tolerance / tick_N) * per_tick_N, 9007199254740991 - per_tick_N - capacity_N)
  if used_N > capacity_N + ahead then used_N, repaired_N = capacity_N, true end
end
--@ wait
retry_N = 0
if need_N > capacity_N then
  retry_N = -1
elseif need_N > 0 and used_N > capacity_N - need_N then
  local excess = used_N - (capacity_N - need_N) + per_tick_N - 1
  retry_N = (t_N + (excess - excess % per_tick_N) / per_tick_N) * tick_N - now
end
--@ charge
used_N = used_N + cost_N
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
if cost_N > used_N then cost_N = used_N end
used_N = used_N - cost_N
--@ standing
do
  local room = math.max(capacity_N - used_N, 0)
  remaining_N, reset_N = (room - room % per_unit_N) / per_unit_N, 0
  if used_N > 0 then
    local left = used_N + per_tick_N - 1
    reset_N = (t_N + (left - left % per_tick_N) / per_tick_N) * tick_N - now
  end
end
--@ write
do
  local state
  if per_tick_N == 1 then
    state = string.format('%.0f%03d', (t_N + used_N) * tick_N, pace_N)
  else
    local beyond = used_N % per_tick_N
    state = pack('<BdI6I6I6B', 5, (t_N + (used_N - beyond) / per_tick_N) * tick_N, beyond, per_tick_N, per_unit_N, power_N)
  end
  call('SET', KEYS[N], state, 'PX', (reset_N - reset_N % 1000) / 1000 + margin)
end
