--[[
  Fixed window: start, length and count of one window. Specified by src/algorithm/fixed_window.rs.

  KEYS[N]  string: kind 1, start (microseconds), length (microseconds), count
  window   the length of windows, or 0: the calendar's months
  offset   where aligned windows begin after the epoch, or -1: with the first request; of months, how far their clock is ahead of
           UTC, which may be negative
]]
--@ args limit window offset cost
--@ names start length count
--@ judge
do
  local time, raw = now, pcall('GET', KEYS[N])
  start_N, length_N, count_N, repaired_N = now, 0, 0, false
  if raw and #raw == 21 then
    local kind, start, length, count = unpack('<BdI6I6', raw)
    if kind == 1 and count > 0 then
      if start > now then
        if start - now <= tolerance then
          time = start
        else
          start, repaired_N = now, true
        end
      end
      if start + length > time then start_N, length_N, count_N = start, length, count end
    end
  elseif raw and raw.err and not raw.err:find('WRONGTYPE') then
    return raw
  end
  -- The window that runs.
  local begin, length = time, window_N
  if window_N == 0 then
    -- Counted in years that begin in March, so that a leap day is the last day of its year.
    local function first_of_month(day)
      local era = (day + 719468) % 146097
      local year = era - (era - era % 1460) / 1460 + (era - era % 36524) / 36524 - (era - era % 146096) / 146096
      year = (year - year % 365) / 365
      local days = era - 365 * year - (year - year % 4) / 4 + (year - year % 100) / 100
      local month = 5 * days + 2
      month = (month - month % 153) / 153
      local first = 153 * month + 2
      return day - days + (first - first % 5) / 5
    end
    local at, day = time + offset_N, 86400000000
    local first = first_of_month((at - at % day) / day)
    begin, length = first * day - offset_N, first_of_month(first + 31) * day - offset_N
    if begin < 0 then begin = 0 end
    length = length - begin
  elseif offset_N >= 0 then
    begin = time - (time - offset_N) % window_N
    if begin < 0 then begin = 0 end
  elseif count_N > 0 and start_N + window_N > time then
    begin = start_N
  end
  if count_N == 0 then
    repaired_N = false
  elseif begin ~= start_N or length ~= length_N then
    -- The quota or the clock has changed: what was counted goes on in the window that now runs.
    repaired_N = true
    if count_N > limit_N then count_N = limit_N end
  end
  start_N, length_N = begin, length
end
--@ wait
retry_N = 0
if need_N > limit_N then
  retry_N = -1
elseif count_N + need_N > limit_N and need_N > 0 then
  retry_N = start_N + length_N - now
end
--@ charge
count_N = count_N + cost_N
--@ clamp
if cost_N > remaining_N then cost_N = remaining_N end
--@ give
if repaired_N then cost_N = 0 end
if start_N + length_N ~= receipt_N then
  cost_N = 0
elseif cost_N > count_N then
  cost_N = count_N
end
count_N = count_N - cost_N
--@ standing
remaining_N, reset_N = 0, 0
if count_N < limit_N then remaining_N = limit_N - count_N end
if count_N > 0 then reset_N = start_N + length_N - now end
--@ write
call('SET', KEYS[N], pack('<BdI6I6', 1, start_N, length_N, count_N), 'PX', (reset_N - reset_N % 1000) / 1000 + margin)
