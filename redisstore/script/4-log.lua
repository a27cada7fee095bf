-- A log is a sorted set: a header of score -1 with the numbers and kind 5, and an
-- entry an admission: '>I6I7I7I2' time, id, running total, count, with the time as
-- score. The running total gives the sum over any stretch from its two ends. Ids
-- grow; they start from the clock's µs, so that a log which was forgotten and began
-- anew gives out others. Once an entry was taken back the header also holds the
-- highest id so far, I7: no id is given out twice.
local function logs()
  local min, max, format = math.min, math.max, string.format
  local within = clock[2] % 1000 -- microseconds

  local function next_id(l) return max(l.at * 1000 + within, l.id + 1, l.floor + 1) end

  local function entry(member)
    local ts, id, total, n = unpack('>I6I7I7I2', member)
    return { ts = ts, id = id, total = total, n = n, member = member }
  end

  -- header is what is kept of the numbers, nil if the key is not a log.
  local function header(key)
    local first = pcall('ZRANGE', key, 0, 0)
    if first.err or not first[1] or (#first[1] ~= 23 and #first[1] ~= 30) then return nil end
    return first[1]
  end

  local function read(key, n, head)
    local l = { kind = 5, key = key, n = n, header = head, floor = 0, id = 0, total = 0, used = 0, ts = 0, at = now }
    if #head == 30 then l.floor = unpack('<I7', head, 24) end
    local newest = call('ZREVRANGE', key, 0, 0)[1]
    if not newest or #newest ~= 22 then return l end
    local last = entry(newest)
    l.id, l.total, l.ts, l.at = last.id, last.total, last.ts, max(now, last.ts)
    local live = call('ZRANGEBYSCORE', key, format('(%.0f', max(-1, l.at - n.n2)), '+inf', 'LIMIT', 0, 1)[1]
    if live then
      l.first = entry(live)
      l.used = l.total - l.first.total + l.first.n
    end
    return l
  end

  -- new is a log in which so many tokens count as spent now.
  local function new(key, n, count)
    local ts = count > 0 and now or 0
    return { kind = 5, key = key, n = n, floor = 0, id = 0, total = 0, used = count, ts = ts, at = now, missing = true, carried = count }
  end

  -- leaves_at is when enough of the oldest entries have left for cost to fit.
  local function leaves_at(l, cost)
    local need = l.used + cost - l.n.n1
    if need <= 0 or cost > l.n.n1 then return 0 end
    if not l.first then return l.at + l.n.n2 end
    local target = l.first.total - l.first.n + need
    if l.first.total >= target then return l.first.ts + l.n.n2 end
    local lo, hi = call('ZRANK', l.key, l.first.member), call('ZCARD', l.key) - 1
    while lo < hi do
      local mid = floor((lo + hi) / 2)
      if entry(call('ZRANGE', l.key, mid, mid)[1]).total >= target then hi = mid else lo = mid + 1 end
    end
    return entry(call('ZRANGE', l.key, lo, lo)[1]).ts + l.n.n2
  end

  local function enter(l, count)
    if count <= 0 then return end
    l.id, l.total, l.ts = next_id(l), l.total + count, l.at
    call('ZADD', l.key, l.at, pack('>I6I7I7I2', l.at, l.id, l.total, count))
  end

  -- trim drops what has left: a bounded part of it, or all when the numbers
  -- change, since a longer window must not bring it back.
  local function trim(l)
    local dead = (l.first and call('ZRANK', l.key, l.first.member) or call('ZCARD', l.key)) - 1
    if dead > 0 then call('ZREMRANGEBYRANK', l.key, 1, l.stale and dead or min(dead, 512)) end
  end

  local function head(l)
    if l.header then call('ZREM', l.key, l.header) end
    l.header = l.n.nums .. pack('<B', 5)
    if l.floor > 0 then l.header = l.header .. pack('<I7', l.floor) end
    call('ZADD', l.key, -1, l.header)
  end

  -- write enters count tokens, and first what is owed to a change of numbers.
  local function write(l, count)
    if l.foreign then call('DEL', l.key) end
    if l.stale or l.missing then head(l) end
    if not l.missing then trim(l) end
    enter(l, l.carried or 0)
    enter(l, count)
    call('PEXPIRE', l.key, max(1, min(l.at - now + l.n.n2, MOST)))
  end

  -- swap replaces members by entries.
  local function swap(l, members, entries)
    trim(l)
    l.floor = max(l.floor, l.id)
    head(l)
    for _, m in ipairs(members) do call('ZREM', l.key, m) end
    for _, e in ipairs(entries) do call('ZADD', l.key, e.ts, pack('>I6I7I7I2', e.ts, e.id, e.total, e.n)) end
  end

  -- pop finds the newest count tokens: the members to remove and what stays of
  -- the oldest of them. It brings l to what is left.
  local function pop(l, count)
    local members, entries, rank = {}, {}, 0
    while count > 0 and l.used > 0 do
      local m = call('ZREVRANGE', l.key, rank, rank)[1]
      local e = entry(m)
      local gone = min(count, e.n)
      count, l.used, rank = count - gone, l.used - gone, rank + 1
      members[#members + 1] = m
      if gone < e.n then entries[1] = { id = e.id, total = e.total - gone, n = e.n - gone, ts = e.ts } end
    end
    local last = entries[1]
    if not last and l.used > 0 then last = entry(call('ZREVRANGE', l.key, rank, rank)[1]) end
    l.ts = last and last.ts or 0
    return members, entries
  end

  -- erase finds an entry and all behind it, whose running totals fall with it.
  -- With more than 1,000 behind it the entry stays, which admits less, never
  -- more. It brings l to what is left.
  local function erase(l, id)
    local members, entries, found = {}, {}, nil
    for _, m in ipairs(call('ZREVRANGE', l.key, 0, 1000)) do
      if #m ~= 22 then return nil end
      local e = entry(m)
      members[#members + 1] = m
      if e.id == id then
        found = e
        break
      end
      entries[#entries + 1] = e
    end
    if not found or not l.first or found.total < l.first.total then return nil end -- it has left
    for _, e in ipairs(entries) do e.total = e.total - found.n end
    l.used = l.used - found.n
    if #entries == 0 then
      local before = l.used > 0 and call('ZREVRANGE', l.key, 1, 1)[1]
      l.ts = before and entry(before).ts or 0
    end
    return members, entries
  end

  return { next_id = next_id, header = header, read = read, new = new, leaves_at = leaves_at, write = write, swap = swap, pop = pop, erase = erase }
end
