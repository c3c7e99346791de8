--[[
  Sliding log: a list of everything admitted, oldest first. Specified by src/algorithm/sliding_log.rs.

  KEYS[N]  list of nine-byte entries: time (microseconds, the lowest 48 bits) and the running total (the lowest 24 bits).
           The first has left the window: its total is what the others are counted from.

  Only a few entries at the ends are read; others are found by halving. drop_N counts entries to remove at the head (-1: the
  key is of another kind), keep_N is the first from the future, left_N the time until the oldest leaves. base_N is the total
  before the window, oldest_N that with its first entry, newest_N the time of its last.
]]
--@ args limit window cost
--@ names t used total drop keep left back base oldest newest
--@ judge
do
  local span, half, totals = 281474976710656, 140737488355328, 16777216
  t_N, used_N, total_N, drop_N, keep_N, left_N, repaired_N = now, 0, false, 0, 0, 0, false
  base_N, oldest_N, newest_N = 0, 0, 0
  local head = pcall('LRANGE', KEYS[N], 0, 3)
  if head.err then
    if not head.err:find('WRONGTYPE') then return head end
    drop_N = -1
  elseif head[2] then
    local at, total = unpack('<I6I3', call('LINDEX', KEYS[N], -1))
    local ahead, length = (at - now) % span, 0
    total_N, newest_N = total, at
    if ahead > 0 and ahead < half then
      if ahead <= tolerance then t_N = now + ahead else repaired_N = true end
    end
    at, base_N = unpack('<I6I3', head[1])
    -- What has left the window: look at three, then halve.
    local place, high = 2, 0
    while head[place] do
      at, total = unpack('<I6I3', head[place])
      local age = (t_N - at) % span
      if age >= half then age = 0 end
      if age < window_N then
        left_N, oldest_N = window_N - age, total
        break
      end
      base_N, drop_N, place = total, place - 1, place + 1
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
          high, left_N, oldest_N = middle, window_N - age, total
        else
          drop_N, base_N = middle, total
        end
      end
    end
    used_N = (total_N - base_N) % totals
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
end
--@ wait
do
  local span, half, totals = 281474976710656, 140737488355328, 16777216
  retry_N = 0
  local excess = used_N + need_N - limit_N
  if need_N > limit_N then
    retry_N = -1
  elseif excess > 0 and need_N > 0 then
    local left = left_N
    if (oldest_N - base_N) % totals < excess then
      local low, high = drop_N + 1, call('LLEN', KEYS[N]) - 1
      left = window_N
      while high >= low do
        -- The first whose total frees enough lies at or after low.
        local middle = (high + low - (high + low) % 2) / 2
        local at, total = unpack('<I6I3', call('LINDEX', KEYS[N], middle))
        if (total - base_N) % totals < excess then
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
    local age = (t_N - newest_N) % span
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
-- From the entry of the receipt's time on: keep_N is then the first that goes, and back_N what comes in its place. Where many
-- have come since, from the oldest instead: drop_N is then the last that goes, and back_N what the others are counted from.
do
  local span, half, totals, near = 281474976710656, 140737488355328, 16777216, 64
  local given, length = 0, 0
  if keep_N == 0 and used_N > 0 and receipt_N + window_N > t_N then length = call('LLEN', KEYS[N]) end
  local first, high = drop_N + 1, length
  while high > first do
    local middle = (high + first - (high + first) % 2) / 2
    if (unpack('<I6', call('LINDEX', KEYS[N], middle)) - receipt_N) % span < half then
      high = middle
    else
      first = middle + 1
    end
  end
  if first < length then
    local _, before = unpack('<I6I3', call('LINDEX', KEYS[N], first - 1))
    given = (total_N - before) % totals
    if cost_N < given then given = cost_N end
    if given > 0 and length - first <= near then
      keep_N, back_N = first, {}
      for _, entry in ipairs(call('LRANGE', KEYS[N], first, -1)) do
        local at, total = unpack('<I6I3', entry)
        total = (total - before) % totals - given
        if total > 0 then
          if first == drop_N + 1 and #back_N == 0 then
            local age = (t_N - at) % span
            if age >= half then age = 0 end
            left_N = window_N - age
          end
          back_N[#back_N + 1] = pack('<I6I3', at, (before + total) % totals)
        end
      end
    elseif given > 0 then
      local base = (total_N - used_N) % totals
      local low, at, total = drop_N + 1, 0, 0
      high = length - 1
      while high > low do
        local middle = (high + low - (high + low) % 2) / 2
        at, total = unpack('<I6I3', call('LINDEX', KEYS[N], middle))
        if (total - base) % totals > given then high = middle else low = middle + 1 end
      end
      at = unpack('<I6', call('LINDEX', KEYS[N], low))
      local age = (t_N - at) % span
      if age >= half then age = 0 end
      left_N, drop_N, back_N = window_N - age, low - 1, pack('<I6I3', now % span, (base + given) % totals)
    end
  end
  cost_N, used_N = given, used_N - given
  if used_N == 0 then left_N = 0 end
end
--@ standing
remaining_N, reset_N = 0, 0
if used_N < limit_N then remaining_N = limit_N - used_N end
if left_N > 0 then reset_N = left_N + t_N - now end
--@ write
do
  local span, totals = 281474976710656, 16777216
  local ttl = (window_N + t_N - now - (window_N + t_N - now) % 1000) / 1000 + margin
  -- First where the list is made anew: a user who may not do it would leave one that stays for ever.
  if drop_N < 0 or not total_N then call('PEXPIRE', KEYS[N], ttl) end
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
  call('PEXPIRE', KEYS[N], ttl)
end
--@ write_back
if used_N == 0 then
  call('DEL', KEYS[N])
elseif keep_N > 0 then
  call('LTRIM', KEYS[N], drop_N, keep_N - 1)
  for _, entry in ipairs(back_N) do call('RPUSH', KEYS[N], entry) end
else
  call('LTRIM', KEYS[N], drop_N, -1)
  call('LSET', KEYS[N], 0, back_N)
end
if used_N > 0 then
  call('PEXPIRE', KEYS[N], (window_N + t_N - now - (window_N + t_N - now) % 1000) / 1000 + margin)
end
