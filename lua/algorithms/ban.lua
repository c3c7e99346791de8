--[[
  Ban: strikes in a window, and what is left of bans. Specified by src/algorithm/ban.rs.

  KEYS[N]  string: kind 6, when the last ban ends or up to when bans were forgotten (microseconds), when the first strike of the window
           was (microseconds), the length of the ban in force (milliseconds, or 0), strikes, how many bans count
  first, longest and hand are in milliseconds, the factor in thousandths; hand: the length of a ban by hand, or 0 for strikes
  begun_N  whether strikes began a ban

  It refuses whatever the cost, and a cost is what is owed to it: strikes.
]]
--@ args most window first factor longest forget hand cost
--@ names till start length strikes level begun
--@ judge
do
  local raw = pcall('GET', KEYS[N])
  till_N, start_N, length_N, strikes_N, level_N, begun_N, repaired_N = 0, 0, 0, 0, 0, false, false
  if raw and #raw == 25 then
    local kind, till, start, length, strikes, level = unpack('<BI7I7I5I4B', raw)
    if kind == 6 then
      if length > 0 and till > now then
        local latest = now + length * 1000
        if till > latest + tolerance then till, repaired_N = latest, true end
      else
        length = 0
        if level > 0 and till > now + tolerance then till, repaired_N = now, true end
        local gone = now - till
        if gone < 0 then gone = 0 end
        gone = (gone - gone % forget_N) / forget_N
        if gone >= level then
          level = 0
        else
          level, till = level - gone, till + gone * forget_N
        end
      end
      if strikes > 0 then
        if start > now + tolerance then start, repaired_N = now, true end
        if start + window_N <= now then strikes = 0 end
      end
      till_N, start_N, length_N, strikes_N, level_N = till, start, length, strikes, level
    end
  elseif raw and raw.err and not raw.err:find('WRONGTYPE') then
    return raw
  end
end
retry_N = 0
if length_N > 0 then retry_N = till_N - now end
--@ clamp
cost_N = 0
--@ owe
if hand_N > 31622400000 then hand_N = 31622400000 end
if hand_N > 0 and cost_N > 0 and (length_N == 0 or till_N < now + hand_N * 1000) then
  till_N, length_N, strikes_N = now + hand_N * 1000, hand_N, 0
elseif hand_N > 0 or length_N > 0 then
  cost_N = 0
elseif cost_N > 0 then
  if strikes_N == 0 then start_N = now end
  strikes_N = strikes_N + cost_N
  if strikes_N >= most_N then
    local length = first_N
    for _ = 1, level_N do
      if length >= longest_N then break end
      length = length * factor_N
      length = (length - length % 1000) / 1000
    end
    if length >= longest_N then
      length = longest_N
    elseif level_N < 64 then
      level_N = level_N + 1
    end
    till_N, length_N, strikes_N, begun_N = now + length * 1000, length, 0, true
  end
end
--@ give
cost_N = 0
--@ standing
remaining_N, reset_N = 0, 0
if length_N == 0 and strikes_N < most_N then remaining_N = most_N - strikes_N end
if strikes_N > 0 then reset_N = start_N + window_N - now end
if length_N > 0 or level_N > 0 then
  local forgotten = till_N + level_N * forget_N - now
  if forgotten > reset_N then reset_N = forgotten end
end
--@ write
call('SET', KEYS[N], pack('<BI7I7I5I4B', 6, till_N, start_N, length_N, strikes_N, level_N), 'PX', (reset_N - reset_N % 1000) / 1000 + margin)
--@ told
if begun_N then told[#told + 1] = N end
