--[[
  Fixed window: start, length and count of one window. Specified by src/algorithm/fixed_window.rs.

  KEYS[N]  string: kind 1, start (microseconds), window (microseconds), count
  offset   where aligned windows begin after the epoch, or -1: with the first request
]]
--@ args limit window offset cost
--@ names start count
--@ judge
do
  local time, raw = now, pcall('GET', KEYS[N])
  start_N, count_N, repaired_N = now, 0, false
  if raw and #raw == 21 then
    local kind, start, window, count = unpack('<BdI6I6', raw)
    if kind == 1 and count > 0 then
      if start > now then
        if start - now <= tolerance then
          time = start
        else
          start, repaired_N = now, true
        end
      end
      if start + window > time then
        start_N, count_N = start, count
        local begin = start
        if offset_N >= 0 then
          begin = time - (time - offset_N) % window_N
          if begin < 0 then begin = 0 end
        elseif start + window_N <= time then
          begin = time
        end
        if begin ~= start or window ~= window_N then
          -- The quota or the clock has changed: what was counted goes on in the window that now runs.
          start_N, repaired_N = begin, true
          if count > limit_N then count_N = limit_N end
        end
      end
    end
  elseif raw and raw.err and not raw.err:find('WRONGTYPE') then
    return raw
  end
  if count_N == 0 then
    start_N, repaired_N = time, false
    if offset_N >= 0 then
      start_N = time - (time - offset_N) % window_N
      if start_N < 0 then start_N = 0 end
    end
  end
end
retry_N = 0
if cost_N > limit_N then
  retry_N = -1
elseif count_N + cost_N > limit_N and cost_N > 0 then
  retry_N = start_N + window_N - now
end
--@ charge
count_N = count_N + cost_N
--@ clamp
if cost_N > remaining_N then cost_N = remaining_N end
--@ give
if repaired_N then cost_N = 0 end
if start_N + window_N ~= receipt_N then
  cost_N = 0
elseif cost_N > count_N then
  cost_N = count_N
end
count_N = count_N - cost_N
--@ standing
remaining_N, reset_N = 0, 0
if count_N < limit_N then remaining_N = limit_N - count_N end
if count_N > 0 then reset_N = start_N + window_N - now end
--@ write
call('SET', KEYS[N], pack('<BdI6I6', 1, start_N, window_N, count_N), 'PX', (reset_N - reset_N % 1000) / 1000 + margin)
