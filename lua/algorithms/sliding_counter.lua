--[[
  Sliding counter: two neighbouring windows in one value. Specified by src/algorithm/sliding_counter.rs.

  KEYS[N]  string: kind 2, start (microseconds), window (microseconds), current count, previous count
  window   in ticks; start_N and passed_N are in ticks too
]]
--@ args limit tick window cost
--@ names start passed current previous
--@ judge
do
  local time, raw = now, pcall('GET', KEYS[N])
  start_N, passed_N, current_N, previous_N, repaired_N = 0, 0, 0, 0, false
  if raw and #raw == 27 then
    local kind, start, window, current, previous = unpack('<BdI6I6I6', raw)
    if kind == 2 then
      if start > now and start - now <= tolerance then time = start end
      if start > time then
        -- The clock went back: what was counted fades out over one window from now.
        current, previous, repaired_N = 0, current + previous, true
      elseif window ~= window_N * tick_N then
        -- Another length: what is in use now fades out over one window from now.
        local passed, left = time - start, 0
        if passed >= 2 * window then
          current, previous = 0, 0
        elseif passed >= window then
          current, previous, left = 0, current, 2 * window - passed
        else
          left = window - passed
        end
        current, previous, repaired_N = 0, current + math.ceil(previous * (left / window)), true
      end
      if repaired_N then start = time - time % tick_N end
      start_N = (start - start % tick_N) / tick_N
      passed_N = (time - time % tick_N) / tick_N - start_N
      if passed_N < window_N then
        current_N, previous_N = current, previous
      elseif passed_N < 2 * window_N then
        start_N, passed_N, previous_N = start_N + window_N, passed_N - window_N, current
      end
      if current_N > limit_N then current_N = limit_N end
      if previous_N > limit_N then previous_N = limit_N end
    end
  elseif raw and raw.err and not raw.err:find('WRONGTYPE') then
    return raw
  end
  if current_N == 0 and previous_N == 0 then
    start_N, passed_N, repaired_N = (time - time % tick_N) / tick_N, 0, false
  end
end
--@ wait
retry_N = 0
if need_N > limit_N then
  retry_N = -1
elseif need_N > 0 then
  local room = limit_N - current_N - need_N
  if room < 0 then
    local share = (limit_N - need_N) * window_N
    retry_N = (start_N + 2 * window_N - (share - share % current_N) / current_N) * tick_N - now
  elseif previous_N * (window_N - passed_N) > room * window_N then
    local share = room * window_N
    retry_N = (start_N + window_N - (share - share % previous_N) / previous_N) * tick_N - now
  end
end
--@ charge
current_N = current_N + cost_N
--@ clamp
if cost_N > remaining_N then cost_N = remaining_N end
--@ give
if repaired_N then cost_N = 0 end
if receipt_N == (start_N + window_N) * tick_N then
  if cost_N > current_N then cost_N = current_N end
  current_N = current_N - cost_N
elseif receipt_N == start_N * tick_N then
  if cost_N > previous_N then cost_N = previous_N end
  previous_N = previous_N - cost_N
else
  cost_N = 0
end
--@ standing
do
  local fading = previous_N * (window_N - passed_N)
  local part = fading % window_N
  remaining_N, reset_N = limit_N - current_N - (fading - part) / window_N, 0
  if part > 0 then remaining_N = remaining_N - 1 end
  if remaining_N < 0 then remaining_N = 0 end
  if current_N > 0 or previous_N > 0 then reset_N = (start_N + window_N) * tick_N - now end
end
--@ write
do
  local idle = reset_N + window_N * tick_N
  call('SET', KEYS[N], pack('<BdI6I6I6', 2, start_N * tick_N, window_N * tick_N, current_N, previous_N), 'PX', (idle - idle % 1000) / 1000 + margin)
end
