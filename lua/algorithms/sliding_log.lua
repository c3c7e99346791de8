--[[
  Sliding log: a list of everything admitted, oldest first. Specified by src/algorithm/sliding_log.rs.

  KEYS[N]  list of nine-byte entries: time (microseconds, the lowest 48 bits) and the running total (the lowest 24 bits).
           The first has left the window: its total is what the others are counted from.

  Only a few entries at the ends are read; others are found by halving. drop_N counts entries to remove at the head (-1: the
  key is of another kind), keep_N is the first from the future, left_N the time until the oldest leaves.
]]
--@ args limit window cost
--@ names t used total drop keep left
--@ judge
do
  local span, half, totals = 281474976710656, 140737488355328, 16777216
  local base, oldest, newest = 0, 0, 0
  t_N, used_N, total_N, drop_N, keep_N, left_N, repaired_N = now, 0, false, 0, 0, 0, false
  local head = pcall('LRANGE', KEYS[N], 0, 3)
  if head.err then
    if not head.err:find('WRONGTYPE') then return head end
    drop_N = -1
  elseif head[2] then
    local at, total = unpack('<I6I3', call('LINDEX', KEYS[N], -1))
    local ahead, length = (at - now) % span, 0
    total_N, newest = total, at
    if ahead > 0 and ahead < half then
      if ahead <= tolerance then t_N = now + ahead else repaired_N = true end
    end
    at, base = unpack('<I6I3', head[1])
    -- What has left the window: look at three, then halve.
    local place, high = 2, 0
    while head[place] do
      at, total = unpack('<I6I3', head[place])
      local age = (t_N - at) % span
      if age >= half then age = 0 end
      if age < window_N then
        left_N, oldest = window_N - age, total
        break
      end
      base, drop_N, place = total, place - 1, place + 1
    end
    if place == 5 then
      length = call('LLEN', KEYS[N])
      high = length
      while high - drop_N > 1 do
        local middle = (high + drop_N - (high + drop_N) % 2) / 2
        at, total = unpack('<I6I3', call('LINDEX', KEYS[N], middle))
        local age = (t_N - at) % span
        if age >= half then age = 0 end
        if age < window_N then
          high, left_N, oldest = middle, window_N - age, total
        else
          drop_N, base = middle, total
        end
      end
    end
    used_N = (total_N - base) % totals
    if repaired_N then
      keep_N = call('LLEN', KEYS[N]) - 1
      local low = drop_N
      while keep_N - low > 1 do
        local middle = (keep_N + low - (keep_N + low) % 2) / 2
        at = unpack('<I6I3', call('LINDEX', KEYS[N], middle))
        ahead = (at - now) % span
        if ahead > 0 and ahead < half then keep_N = middle else low = middle end
      end
    end
  end
  retry_N = 0
  local excess = used_N + cost_N - limit_N
  if cost_N > limit_N then
    retry_N = -1
  elseif excess > 0 and cost_N > 0 then
    local left = left_N
    if (oldest - base) % totals < excess then
      local low, high = drop_N + 1, call('LLEN', KEYS[N]) - 1
      left = window_N
      while high >= low do
        -- The first whose total frees enough lies at or after low.
        local middle = (high + low - (high + low) % 2) / 2
        local at, total = unpack('<I6I3', call('LINDEX', KEYS[N], middle))
        if (total - base) % totals < excess then
          low = middle + 1
        else
          local age = (t_N - at) % span
          if age >= half then age = 0 end
          high, left = middle - 1, window_N - age
        end
      end
    end
    retry_N = left + t_N - now
    -- A window that was made longer matters for longer than its TTL: until the newest entry leaves.
    local age = (t_N - newest) % span
    if age >= half then age = 0 end
    if call('PTTL', KEYS[N]) * 1000 < window_N - age then repaired_N = true end
  end
end
--@ charge
used_N = used_N + cost_N
if left_N == 0 and cost_N > 0 then left_N = window_N end
--@ clamp
if cost_N > remaining_N then cost_N = remaining_N end
--@ give
-- From the newest entry on. keep_N is then the first that goes; total_N is the entry that the log ends with instead.
if cost_N > used_N then cost_N = used_N end
do
  local span, totals = 281474976710656, 16777216
  local base = ((total_N or 0) - used_N) % totals
  used_N, total_N = used_N - cost_N, false
  if used_N == 0 then
    left_N = 0
  else
    local low, high, time = drop_N + 1, keep_N - 1, now % span
    if keep_N == 0 then high = call('LLEN', KEYS[N]) - 1 end
    keep_N = high + 1
    while high >= low do
      local middle = (high + low - (high + low) % 2) / 2
      local at, total = unpack('<I6I3', call('LINDEX', KEYS[N], middle))
      if (total - base) % totals < used_N then
        low = middle + 1
      else
        high, keep_N, time = middle - 1, middle, at
      end
    end
    total_N = pack('<I6I3', time, (base + used_N) % totals)
  end
end
--@ standing
remaining_N, reset_N = 0, 0
if used_N < limit_N then remaining_N = limit_N - used_N end
if left_N > 0 then reset_N = left_N + t_N - now end
--@ write
do
  local span, totals = 281474976710656, 16777216
  if drop_N < 0 then
    call('DEL', KEYS[N])
  elseif keep_N > 0 then
    call('LTRIM', KEYS[N], drop_N, keep_N - 1)
    call('RPUSH', KEYS[N], pack('<I6I3', now % span, total_N))
  elseif granted and drop_N > 0 then
    call('LTRIM', KEYS[N], drop_N, -1)
  end
  if granted and cost_N > 0 then
    local entry = pack('<I6I3', t_N % span, ((total_N or 0) + cost_N) % totals)
    if total_N then
      call('RPUSH', KEYS[N], entry)
    else
      call('RPUSH', KEYS[N], pack('<I6I3', t_N % span, 0), entry)
    end
  end
  call('PEXPIRE', KEYS[N], (window_N + t_N - now - (window_N + t_N - now) % 1000) / 1000 + margin)
end
--@ write_back
if total_N then
  call('LTRIM', KEYS[N], drop_N, keep_N - 1)
  call('RPUSH', KEYS[N], total_N)
  call('PEXPIRE', KEYS[N], (window_N + t_N - now - (window_N + t_N - now) % 1000) / 1000 + margin)
else
  call('DEL', KEYS[N])
end
