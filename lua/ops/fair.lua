--[[
  What a tenant must leave of a limit that it shares. Specified by src/algorithm/fair.rs.

  The tenant's use is a fixed window M, judged before. It stands in what the rule N needs; when the tenant's window ends it is
  nothing, so the wait is no longer than that and until the rule would fit without it.

  unit     parts of one unit
  whole    the capacity, in units
  half     what a tenant leaves one by one, in units
  rest     what it leaves besides where it has had the whole
]]
--@ args unit whole half rest
--@ begin
if count_M > 0 and need_N > 0 and retry_N >= 0 then
  local alone, ends = retry_N, start_M + length_M - now
  local used = count_M
  if used > whole_N then used = whole_N end
  local kept = used
  if used > half_N then
    local more = (used - half_N) * rest_N
    kept = half_N + (more - more % (whole_N - half_N)) / (whole_N - half_N)
  end
  local room = whole_N * unit_N - need_N
  if kept * unit_N < room then room = kept * unit_N end
  need_N = need_N + room
--@ end
  if retry_N > ends then
    retry_N = ends
    if alone > ends then retry_N = alone end
  end
end
