-- Everything but a take on a plain token bucket whose numbers did not change.
-- careful returns decide(i, key, arg, s): it fills records[i] and, at i, what to
-- do when the request is spent and when it is denied; it returns whether the op
-- was ok, or nil and the answer that ends the script.
local function careful(records, on_spend, on_denial)
  local min, max = math.min, math.max
  local BUCKET, SLIDING, FIXED, LOG = 1, 3, 4, 5
  local KINDS, LENGTH = { BUCKET, SLIDING, LOG, FIXED }, { 36, 51, 41, 41 }
  local lease, window, log, reserve = leasing(), nil, nil, nil

  local function numbers(nums, kind)
    local rev, n1, n2, n3 = unpack('<I6I6I5I5', nums)
    return { nums = nums, kind = kind, rev = rev, n1 = n1, n2 = n2, n3 = n3 }
  end

  local function same(a, b)
    return a.kind == b.kind and a.n1 == b.n1 and a.n2 == b.n2 and a.n3 == b.n3
  end

  local function wrong(alg, n)
    if n.n1 < 1 or n.n1 > 10000000000000 or n.n2 > MOST then return true end
    if alg == 1 then
      return n.n2 < 1 or n.n3 < 1 or n.n1 * n.n2 > EXACT or n.n1 * n.n2 / n.n3 > MOST
    elseif alg == 2 then
      return n.n2 < 1 or n.n1 * n.n2 > EXACT or 2 * n.n2 > MOST or n.n3 ~= 0
    elseif alg == 3 then
      return n.n2 < 1 or n.n1 > 10000 or n.n3 ~= 0
    end
    return n.n3 % 4 > 2 or (n.n3 % 4 < 2 and n.n2 < 1) or n.n1 > 1000000000000
  end

  local function parse(arg)
    if #arg < 30 then return nil end
    local alg, how, flags, cost = unpack('<BBBI5', arg)
    if alg < 1 or alg > 4 or how > 9 or (cost > MAX_COST and how ~= 5) then return nil end
    local n = numbers(sub(arg, 9, 30), KINDS[alg])
    if wrong(alg, n) then return nil end
    local o = { arg = arg, n = n, how = how, cost = cost, shadow = flags % 2 == 1, lean = floor(flags / 2) % 2 == 1, later = floor(flags / 64) % 2 == 1 }
    local pos = 31
    local function has(flag, bytes)
      if floor(flags / flag) % 2 == 0 then return false end
      pos = pos + bytes
      return #arg >= pos - 1
    end
    if has(4, 20) then o.queue, o.want, o.pods = unpack('<I6I5I4', arg, 31) end
    if has(8, 24) then
      local a, b, c, d = unpack('<I6I6I6I6', arg, pos - 24)
      if not (a < b and b < c and c < d) or d - a > 4 * MOST then return nil end
      o.edges = { a, b, c, d }
    end
    if has(16, 1) then
      o.reports = pos - 1
      local count = unpack('<B', arg, o.reports)
      if count > 2 then return nil end
      pos = pos + 16 * count
    end
    if has(32, 7) then o.receipt = unpack('<I7', arg, pos - 7) end
    if has(128, 20) then
      o.id, o.ttl = sub(arg, pos - 20, pos - 5), unpack('<I4', arg, pos - 4)
      if (how ~= 5 and (how < 7 or o.ttl < 1000)) or o.ttl > 3600000 then return nil end
    end
    if how > 6 and (not o.id or (how == 7 and cost < 1)) then return nil end
    if pos ~= #arg + 1 then return nil end
    if o.pods and o.pods < 1 then o.pods = 1 end
    return o
  end

  -- rescale keeps whole tokens and rounds the fraction down.
  local function rescale(level, from, to, burst)
    local whole = div(level, from)
    if whole >= burst then return burst * to end
    local rest = level - whole * from
    if from * to > EXACT then rest = 0 end
    return whole * to + div(rest * to, from)
  end

  local function give_back(st, cost)
    if st.kind == BUCKET then
      local cap = (st.n.n1 - st.out0 - st.out1) * st.n.n2
      st.level = max(st.level, min(cap, st.level + min(cost, st.n.n1) * st.n.n2))
    else
      st.cur = max(0, st.cur - cost)
    end
  end

  -- advance brings a bucket to now, under n, which may be new to it: time before
  -- a change refills at the slower of the two rates.
  local function advance(b, n)
    if now < b.ts then b.ts, b.dirty = now, true end
    local old, level = b.n, b.level
    local function refill(by)
      level = lease.refill(level, b.ts, b.gen, b.out0, b.out1, by.n3, by.n2, old.n1, by.n1 * by.n2)
    end
    if same(old, n) then
      refill(n)
    elseif old.n3 / old.n2 <= n.n3 / n.n2 then
      refill(old)
      level = rescale(level, old.n2, n.n2, n.n1)
    else
      level = rescale(level, old.n2, n.n2, n.n1)
      refill(n)
    end
    b.gen, b.out0, b.out1 = lease.rotate(b.gen, b.out0, b.out1)
    if not same(old, n) then level = min(level, max(0, (n.n1 - b.out0 - b.out1) * n.n2)) end
    b.level, b.ts, b.n = level, now, n
    if b.held then reserve.release(b, give_back) end
  end

  -- load returns the stored state, nil for a missing bucket, or nil and why not.
  local function load(key, s)
    if s == false then return nil end
    local head = s
    if type(s) ~= 'string' then
      log = log or logs()
      head = log.header(key)
      if not head then return nil, 'TALLY the key holds something else' end
      return log.read(key, numbers(sub(head, 1, 22), LOG), head)
    end
    local kind = s:byte(23)
    local held
    if kind and kind > 16 then
      kind = kind - 16
      reserve = reserve or reserves()
      held = LENGTH[kind] and reserve.read(s, LENGTH[kind] + 1)
    end
    if not held and (LENGTH[kind or 0] ~= #s or kind ~= s:byte(23)) then return nil, 'TALLY the key holds something else' end
    if kind > 2 then
      window = window or windows()
      local st = { kind = kind, n = numbers(sub(s, 1, 22), kind), prev = 0, held = held }
      local a, b, c = unpack('<I6I6I6', s, 24)
      if kind == SLIDING then
        st.start, st.stop, st.prev, st.cur = a, a + st.n.n2, b, c
      else
        st.start, st.stop, st.cur = a, b, c
      end
      return st
    end
    local st = { kind = BUCKET, n = numbers(sub(s, 1, 22), BUCKET), out0 = 0, out1 = 0, held = held }
    st.level, st.ts = unpack('<I7I6', s, 24)
    st.gen = floor(st.ts / T)
    if kind == 2 then st.gen, st.out0, st.out1 = unpack('<I5I5I5', s, 37) end
    return st
  end

  -- fresh makes a state of n with so many tokens left.
  local function fresh(key, n, edges, tokens)
    if n.kind == BUCKET then
      return { kind = BUCKET, n = n, level = tokens * n.n2, ts = now, gen = floor(now / T), out0 = 0, out1 = 0 }
    elseif n.kind == LOG then
      log = log or logs()
      return log.new(key, n, n.n1 - tokens)
    end
    window = window or windows()
    return window.new(n, edges, n.n1 - tokens)
  end

  -- remains is what a state has left under its own numbers, in whole tokens.
  local function remains(st)
    if st.kind == BUCKET then
      advance(st, st.n)
      return div(st.level, st.n.n2)
    elseif st.kind == LOG then
      return max(0, st.n.n1 - st.used)
    end
    window.advance(st, st.n, nil)
    return window.left(st)
  end

  -- convert carries a state over to newer numbers. Nothing refills.
  local function convert(key, st, n, edges)
    if st.n.kind ~= n.kind then
      local foreign = st.kind ~= LOG and n.kind == LOG
      local left, before = remains(st), st
      st = fresh(key, n, edges, min(n.n1, left))
      if st then st.dirty, st.stale, st.foreign = true, true, foreign end
      if st and n.kind ~= LOG then st.held = before.held end
      return st
    end
    if n.kind == BUCKET then
      advance(st, n)
    elseif n.kind == LOG then
      if n.n2 < st.n.n2 then st = log.read(key, n, st.header) end
      st.stale = true
    else
      local held = st.held
      st = window.convert(st, n, edges)
      if not st then return nil end
      st.held = held
    end
    st.n, st.dirty = n, true
    return st
  end

  -- current returns the state at now, by the newer of stored and asked numbers. A
  -- window that has not ended keeps numbers waiting that are to apply later.
  local function current(key, st, n, edges, later)
    -- What ended in a window counts as given back in it, whenever that is seen.
    if st.held and st.kind ~= BUCKET then reserve.release(st, give_back) end
    if n.rev > st.n.rev then
      if same(st.n, n) then
        st.n, st.dirty, st.stale = n, true, true
      elseif not (later and st.stop and st.kind == n.kind and now < st.stop) then
        return convert(key, st, n, edges)
      end
    end
    if st.kind == BUCKET then
      advance(st, st.n)
    elseif st.kind ~= LOG then
      -- Edges of another calendar, which an older rule counted by, would make a
      -- day's window a month long.
      if n.n3 ~= st.n.n3 then edges = nil end
      if not window.advance(st, st.n, edges) then return nil end
    end
    return st
  end

  local function write(key, st)
    local state, life
    local n = st.n
    if st.kind == BUCKET then
      state, life = lease.stored(n.nums, st.level, st.gen, st.out0, st.out1, n.n3, n.n1 * n.n2)
    else
      state, life = window.stored(st)
      state = n.nums .. state
    end
    if st.held then state, life = reserve.stored(state, life, st.held) end
    life = max(1, min(life, 2 * MOST))
    return function() call('PSETEX', key, life, state) end
  end

  -- tell packs an op's view before it spends, and what was lent and where.
  local function tell(i, st, ok, cost, queue, loan, gen, ms, receipt, met)
    local a, b, c, d, out = st.level, 0, 0, 0, 0
    if st.kind == BUCKET then
      out = st.out0 + st.out1
    elseif st.kind == LOG then
      a, b, c = st.used, st.ts, log.leaves_at(st, cost)
    else
      a, b, c, d = st.start, st.stop, st.prev, st.cur
    end
    records[i] = pack('<B', (ok and 3 or 2) + 8 * (met or 0)) .. st.n.nums
      .. pack('<BI7I6I6I6I6I5I6I5I5I7', st.kind, a, b, c, d, queue, loan, gen, ms, out, receipt)
  end

  -- settle takes in the op's reports: they are written even if nothing else is.
  local function settle(st, o)
    if st.kind == BUCKET then
      st.level, st.out0, st.out1, st.settled = lease.settle(o.arg, o.reports, st.level, st.gen, st.out0, st.out1, st.n.n2, st.n.n1 * st.n.n2)
    else
      for r = 1, o.arg:byte(o.reports) do
        local gen, _, back = unpack('<I6I5I5', o.arg, o.reports - 15 + 16 * r)
        if gen == st.start and min(back, st.cur) > 0 then st.cur, st.settled = max(0, st.cur - back), true end
      end
    end
  end

  -- add spends cost whether it is there or not and returns what was spent.
  local function add(st, cost)
    if st.kind == BUCKET then
      local before = st.level
      st.level = max(0, before - cost * st.n.n2)
      return min(cost, div(before, st.n.n2))
    end
    local before = st.cur
    st.cur = min(before + cost, window.most(st))
    return max(0, st.cur - before)
  end

  -- change does what is not a take, whatever the verdict of the others. Its view
  -- is of what it leaves, its queue what it added.
  local function change(i, key, o, st, stored)
    local how, ok, added, changed = o.how, stored, 0, stored and (st.dirty or st.settled)
    if how == 1 then
      added, changed = add(st, o.cost), changed or o.cost > 0
      ok = true
    elseif how == 5 and o.id then
      local at, r = reserve.find(st, o.id)
      ok = stored and at ~= nil and r.cost > 0
      if ok then
        if reserve.returns(st, r) then give_back(st, r.cost) end
        st.held, changed = reserve.replace(st, at, nil), true
      end
    elseif how == 5 and (o.cost == 0 or (st.kind ~= BUCKET and st.start ~= o.receipt)) then
      ok = false
    elseif (how == 2 or how == 5) and stored then
      give_back(st, o.cost)
      changed = true
    end
    if changed then
      on_spend[i] = write(key, st)
      on_denial[i] = on_spend[i]
    end
    tell(i, st, ok, 0, added, 0, 0, 0, st.start or 0)
    return ok
  end

  -- take decides and, unless it only looks, prepares the spending.
  local function take(i, key, o, st, stored)
    local cost, ok = o.cost, nil
    if st.kind == BUCKET then ok = st.level >= cost * st.n.n2 else ok = window.fits(st, cost) end
    if stored and o.how == 0 and (st.settled or (st.dirty and cost > 0)) then
      on_denial[i] = write(key, st)
      on_spend[i] = on_denial[i]
    end
    if not ok or cost == 0 or o.how == 3 then
      tell(i, st, ok, cost, 0, 0, 0, 0, 0)
      return ok
    end
    local after = {}
    for k, v in pairs(st) do after[k] = v end
    add(after, cost)
    local queue, loan, gen, ms = 0, 0, 0, 0
    if o.queue and st.kind == BUCKET then
      local n = st.n
      after.level, queue, loan = lease.lend(o.arg, after.level, st.out0 + st.out1, n.n1, n.n3, n.n2)
      after.out0, gen, ms = st.out0 + loan, st.gen, min((st.gen + 2) * T - now, 2 * T) - 1
    elseif o.queue then
      queue, loan, gen, ms = window.lend(after, o)
    end
    on_spend[i] = write(key, after)
    tell(i, st, ok, cost, queue, loan, gen, ms, st.start or 0)
    return ok
  end

  -- hold decides a reservation: a take under a name. It meets: 1 nobody, 2 itself,
  -- open, 3 itself, settled or of another cost, 4 a full list.
  local function hold(i, key, o, st, stored)
    local _, r = reserve.find(st, o.id)
    local fits, ok, met, wait = false, false, 0, 0
    if st.kind == BUCKET then fits = st.level >= o.cost * st.n.n2 else fits = window.fits(st, o.cost) end
    if r then
      ok = r.cost > 0 and r.cost == o.cost -- for another cost the name is taken
      met = ok and 2 or 3
    else
      wait = reserve.wait(st)
      if wait > 0 then met = 4 elseif fits then ok, met = true, 1 end
    end
    if stored and (st.settled or st.dirty) then
      on_denial[i] = write(key, st)
      on_spend[i] = on_denial[i]
    end
    if met == 1 then
      local after = {}
      for k, v in pairs(st) do after[k] = v end
      add(after, o.cost)
      reserve.enter(after, o.id, o.ttl, o.cost)
      on_spend[i] = write(key, after)
    end
    tell(i, st, ok, o.cost, 0, 0, 0, min(wait, MOST), st.start or 0, met)
    return ok
  end

  -- settle_up commits or cancels. It meets: 1 an open reservation, 3 a settled one,
  -- 5 none.
  local function settle_up(i, key, o, st, stored)
    local at, r = reserve.find(st, o.id)
    local changed, met = stored and (st.dirty or st.settled), 1
    if at and r.cost == 0 then
      met = 3
    elseif at then
      local more = (o.how == 8 and o.cost or 0) - r.cost
      if more > 0 then add(st, more) elseif reserve.returns(st, r) then give_back(st, -more) end
      reserve.mark(st, at, o.ttl)
      changed = true
    else
      met = 5
      if o.how == 8 and o.cost > 0 then
        add(st, o.cost)
        reserve.enter(st, o.id, o.ttl, 0)
        changed = true
      end
    end
    if changed then
      on_spend[i] = write(key, st)
      on_denial[i] = on_spend[i]
    end
    tell(i, st, true, 0, 0, 0, 0, 0, st.start or 0, met)
    return true
  end

  -- log_op decides an op on a log. What is owed to a change of numbers is
  -- written whatever the verdict.
  local function log_op(i, o, st, stored)
    local how, cost, met = o.how, o.cost, o.how > 6 and 5 or 0
    if how == 8 then how = 1 elseif how == 9 then how = 4 end -- a log knows no reservation
    local free = max(0, st.n.n1 - st.used)
    local ok, enters, queue, members, entries = stored, 0, 0, nil, nil
    local owed = st.stale and how ~= 3 and (how ~= 0 or cost > 0)
    if how == 0 or how == 3 then
      ok = cost <= st.n.n1 - st.used
      if how == 0 and ok and cost > 0 then
        queue = min(o.queue or 0, free - cost)
        enters = cost + queue
      end
    elseif how == 1 then
      ok, enters = true, min(cost, free)
      queue = enters
    elseif how == 2 and stored and st.missing then
      st.carried = max(0, st.carried - cost)
      st.used = st.carried
    elseif how == 2 and stored then
      members, entries = log.pop(st, cost)
    elseif how == 5 then
      if not st.missing and cost > 0 then members, entries = log.erase(st, o.receipt or 0) end
      ok = members ~= nil
    end
    local receipt = 0
    if enters > 0 then receipt = log.next_id(st) + ((st.carried or 0) > 0 and 1 or 0) end
    local writes = owed or enters > 0 or (how == 1 and cost > 0)
    local function act()
      if writes then log.write(st, enters) end
      if members then log.swap(st, members, entries) end
    end
    if writes or members then on_spend[i] = act end
    if how ~= 0 then
      on_denial[i] = on_spend[i]
    elseif owed then
      on_denial[i] = function() log.write(st, 0) end
    end
    if how == 1 then st.used, st.ts = st.used + enters, enters > 0 and st.at or st.ts end
    ok = ok or met > 0
    tell(i, st, ok, (how == 0 or how == 3) and cost or 0, queue, 0, 0, 0, receipt, met)
    return ok
  end

  return function(i, key, arg, s)
    local o = parse(arg)
    if not o then return nil, redis.error_reply('TALLY arguments out of bounds') end
    local st, other = load(key, s)
    if other then return nil, redis.error_reply(other) end
    local stored = st ~= nil and o.how ~= 6
    if stored then
      st = current(key, st, o.n, o.edges, o.later)
    else
      st = fresh(key, o.n, o.edges, o.lean and min(o.cost, o.n.n1) or o.n.n1)
    end
    if not st then return nil, pack('<BI6', 2, now) end
    if o.how == 6 then
      on_spend[i] = function() call('DEL', key) end
      on_denial[i] = on_spend[i]
      tell(i, st, true, 0, 0, 0, 0, 0, 0)
      return true
    end
    local ok
    if o.id then reserve = reserve or reserves() end
    if st.kind == LOG and o.how == 7 then return nil, redis.error_reply('TALLY a log keeps no reservations') end
    if st.kind == LOG then
      ok = log_op(i, o, st, stored)
    else
      -- Nothing is out of a bucket nobody knows, whatever a report says.
      if o.reports and stored and o.how ~= 3 then settle(st, o) end
      if o.how == 0 or o.how == 3 then
        ok = take(i, key, o, st, stored)
      elseif o.how == 7 then
        ok = hold(i, key, o, st, stored)
      elseif o.how > 7 then
        ok = settle_up(i, key, o, st, stored)
      else
        ok = change(i, key, o, st, stored)
      end
    end
    if o.shadow and not ok then on_spend[i] = on_denial[i] end
    return ok or o.shadow or (o.how ~= 0 and o.how ~= 7)
  end
end
