--[[
  Asks the module redis-cell about several rules, and charges all of them or none. A shadow rule that does not fit keeps no other
  from being charged, and is not charged itself.

  KEYS     one for each rule; to take or give, then the record that it was done
  ARGV[1]  0 judge only, 1 charge all if all fit, 2 take what is left, 3 give back what is spent
  ARGV[2]  how long the record is kept (milliseconds)
  ARGV     then for each rule: max_burst, count, period (seconds), cost, 1 for a shadow or 0
  returns  for each rule: refused (0 or 1), remaining, retry (seconds, -1 it never fits), reset (seconds)

  The module judges by charging, unless the quantity is zero: then it answers what remains. Its clock goes on while this runs, so what
  remains may grow in between.
]]
local call, pcall = redis.call, redis.pcall
local purpose, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
local rules = #KEYS
if purpose >= 2 then rules = rules - 1 end

local function throttle(how, rule, quantity)
  local at = 5 * rule - 2
  return how('CL.THROTTLE', KEYS[rule], ARGV[at], ARGV[at + 1], ARGV[at + 2], quantity)
end

local capacity, cost, standing, refused = {}, {}, {}, {}
local fits = true
for rule = 1, rules do
  capacity[rule], cost[rule] = ARGV[5 * rule - 2] + 1, tonumber(ARGV[5 * rule + 1])
  standing[rule] = throttle(call, rule, 0)
  refused[rule] = 0
  if purpose < 2 and cost[rule] > standing[rule][3] then
    refused[rule] = 1
    if ARGV[5 * rule + 2] == '0' then fits = false end
  end
end

-- Gives back as much as is spent. The module cannot go below nothing: it would fail, and leave a key without a TTL.
local function give(rule)
  if cost[rule] == 0 then return end
  local spent = capacity[rule] - throttle(call, rule, 0)[3]
  if spent > cost[rule] then
    local done = throttle(pcall, rule, -cost[rule])
    if not done.err then return end
    if not done.err:find('expire') then return done end
  end
  call('DEL', KEYS[rule])
end

if purpose >= 2 then
  if call('SET', KEYS[#KEYS], 1, 'PX', ttl, 'NX') then
    for rule = 1, rules do
      local error
      if purpose == 3 then
        error = give(rule)
      else
        throttle(call, rule, math.min(cost[rule], standing[rule][3]))
      end
      if error then return error end
      standing[rule] = throttle(call, rule, 0)
    end
  end
elseif purpose == 1 and fits then
  for rule = 1, rules do
    if refused[rule] == 0 then
      local charged = throttle(call, rule, cost[rule])
      standing[rule] = charged
      if charged[1] == 1 and cost[rule] > 0 then
        -- The clock has stepped back meanwhile.
        refused[rule] = 1
        if ARGV[5 * rule + 2] == '0' then
          for before = 1, rule - 1 do
            if refused[before] == 0 then give(before) end
          end
          break
        end
      end
    end
  end
end

if purpose < 2 then
  for rule = 1, rules do
    if refused[rule] == 1 and cost[rule] > standing[rule][3] and cost[rule] <= capacity[rule] then
      local tried = throttle(call, rule, cost[rule])
      -- Earned just now: then the next try will fit.
      if tried[1] == 0 then give(rule) end
      standing[rule][4] = math.max(tried[4], 0)
    end
  end
end

local answer = {}
for rule = 1, rules do
  local it = standing[rule]
  if cost[rule] > capacity[rule] then it[4] = -1 end
  answer[4 * rule - 3], answer[4 * rule - 2], answer[4 * rule - 1], answer[4 * rule] =
    refused[rule], it[3], it[4], it[5]
end
return answer
