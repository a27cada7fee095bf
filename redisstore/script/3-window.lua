-- Windows, sliding and fixed: a table {kind, n, start, stop, prev, cur}.
local function windows()
  local min, max, fmod = math.min, math.max, math.fmod
  local SLIDING = 3

  -- place returns the window that holds now, nil when no calendar edge fits.
  local function place(n, edges, w)
    local align = n.n3 % 4
    if align == 0 then
      local start = now - fmod(now, n.n2)
      return start, start + n.n2
    elseif align == 1 then
      return now, now + n.n2
    elseif edges then
      for e = 1, 3 do
        if edges[e] <= now and now < edges[e + 1] then return edges[e], edges[e + 1] end
      end
    elseif w then -- stored numbers of a calendar the asker does not know
      local length = w.stop - w.start
      local start = w.start + floor((now - w.start) / length) * length
      return start, start + length
    end
    return nil
  end

  -- advance moves to the window that holds now. A clock that stepped back by
  -- less than a window waits in the stored one; by more, the counts come along.
  local function advance(w, n, edges)
    if w.start <= now and now < w.stop then return true end
    if now < w.start and w.start - now <= w.stop - w.start then return true end
    local start, stop = place(n, edges, w)
    if not start then return false end
    if now < w.start then
      w.dirty = true
    elseif n.kind == SLIDING and start == w.stop then
      w.prev, w.cur = w.cur, 0
    else
      w.prev, w.cur = 0, 0
    end
    w.start, w.stop = start, stop
    return true
  end

  -- weight is what of the previous window still counts, × window ms.
  local function weight(w)
    if w.prev == 0 then return 0 end
    return w.prev * (w.stop - max(now, w.start))
  end

  local function used(w)
    local over, length = weight(w), w.stop - w.start
    local whole = div(over, length)
    return w.cur + whole + (whole * length < over and 1 or 0)
  end

  local function left(w)
    local room = w.n.n1 - w.cur
    if room <= 0 or w.prev == 0 then return max(0, room) end
    local length = w.stop - w.start
    return max(0, floor((room * length - weight(w)) / length))
  end

  local function fits(w, cost)
    local room = w.n.n1 - w.cur - cost
    return room >= 0 and (w.prev == 0 or weight(w) <= room * (w.stop - w.start))
  end

  -- most is the largest count: a sliding one must multiply exactly with its
  -- length, a fixed one only fit its field.
  local function most(w)
    return w.kind == SLIDING and div(EXACT, w.stop - w.start) or 100000000000000
  end

  local function new(n, edges, count)
    local start, stop = place(n, edges)
    if not start then return nil end
    local w = { kind = n.kind, n = n, start = start, stop = stop, prev = 0 }
    w.cur = min(count, most(w))
    return w
  end

  -- convert carries the counts over to other numbers of the same algorithm.
  local function convert(w, n, edges)
    local old = w.n
    if old.n2 == n.n2 and old.n3 == n.n3 then return advance(w, n, edges) and w or nil end
    local count = 0
    if n.kind == SLIDING then
      advance(w, old, edges)
      count = used(w)
    elseif now < w.stop then
      count = w.cur
    end
    return new(n, edges, count)
  end

  -- lend leases from the window itself: what is out counts as spent in it.
  local function lend(w, o)
    local free = left(w)
    local queue = min(o.queue, free)
    free = free - queue
    local length = w.stop - w.start
    local near = min(free, div(w.n.n1 * 20, length * o.pods))
    local lease = min(o.want, max(floor(free / (2 * o.pods)), near))
    local ms = min(w.stop - now, 1000) - 1
    if ms <= 0 or now < w.start then lease = 0 end
    w.cur = w.cur + queue + lease
    return queue, lease, w.start, ms
  end

  local function stored(w)
    local length = w.stop - w.start
    if w.kind == SLIDING then return pack('<BI6I6I6', 3, w.start, w.prev, w.cur), w.stop + length - now end
    local grace = length < 82800000 and 3600000 or 90000000 -- 1 h; 25 h from a day on, even one of 23 h
    return pack('<BI6I6I6', 4, w.start, w.stop, w.cur), w.stop + grace - now
  end

  return { advance = advance, left = left, fits = fits, most = most, new = new, convert = convert, lend = lend, stored = stored }
end
