-- Leases of a token bucket: tokens pods have paid for and may spend by
-- themselves. out0 were lent in generation gen (T ms each), out1 in the one
-- before; a lease of generation g is dead at (g + 2)·T. While level + out is
-- full nothing refills, and so no span admits more than burst + rate.
local function leasing()
  local min, max = math.min, math.max

  -- fill never lets a level fall by a cap: what leases hold may have lowered it.
  local function fill(level, rate, ms, cap)
    if ms <= 0 or level >= cap then return level end
    local add = rate * ms -- exact below 2^53, and above it only compared
    if add >= cap - level then return cap end
    return level + add
  end

  -- refill runs each stretch under what was out in it: out1 until (gen+1)·T,
  -- out0 until (gen+2)·T. burst is that of the time; cap, in parts, bounds it.
  local function refill(level, ts, gen, out0, out1, rate, period, burst, cap)
    if out0 + out1 > 0 then
      local first, second = (gen + 1) * T, (gen + 2) * T
      if ts < first then
        local stop = min(now, first)
        level = fill(level, rate, stop - ts, min(cap, (burst - out0 - out1) * period))
        ts = stop
      end
      if ts < second and ts < now then
        local stop = min(now, second)
        level = fill(level, rate, stop - ts, min(cap, (burst - out0) * period))
        ts = stop
      end
    end
    return fill(level, rate, now - ts, min(cap, burst * period))
  end

  -- rotate follows the clock's generation, which never goes back.
  local function rotate(gen, out0, out1)
    local k = max(floor(now / T), gen)
    if k == gen then return gen, out0, out1 end
    if k == gen + 1 then return k, 0, out0 end
    return k, 0, 0
  end

  -- settle takes in what became of leases: the level rises by what comes back of
  -- what was out, never above the burst, which may have become smaller. A report
  -- older than two generations is of tokens the bucket has already written off.
  local function settle(arg, pos, level, gen, out0, out1, period, cap)
    local reports, before = unpack('<B', arg, pos), out0 + out1
    pos = pos + 1
    for _ = 1, reports do
      local g, spent, back
      g, spent, back, pos = unpack('<I6I5I5', arg, pos)
      if g == gen then
        back = min(back, out0)
        out0 = out0 - back
        level = max(level, min(cap - (out0 + out1) * period, level + back * period))
        out0 = out0 - min(spent, out0)
      elseif g == gen - 1 then
        back = min(back, out1)
        out1 = out1 - back
        level = max(level, min(cap - (out0 + out1) * period, level + back * period))
        out1 = out1 - min(spent, out1)
      end
    end
    return level, out0, out1, out0 + out1 < before
  end

  -- lend takes queue and lease out of what the cost left: half of it shared by
  -- the pods, or, near the limit, 20 ms of this pod's part of the rate. room
  -- leaves the bucket able to fill up to max_cost, so that a told retry is true.
  local function lend(arg, level, out, burst, rate, period)
    local queue, want, pods, max_cost = unpack('<I6I5I4I5', arg, 31)
    if pods < 1 then pods = 1 end
    local left = div(level, period)
    if queue > left then queue = left end
    level, left = level - queue * period, left - queue
    local half = min(floor(left / (2 * pods)), div(max(0, level - out * period), 2 * period))
    local near = min(left, floor(rate * 20 / (period * pods)))
    local lease = max(0, min(want, burst - out - max_cost, max(half, near)))
    return level - lease * period, queue, lease
  end

  -- stored is what is kept of a bucket, and for how long: until it is full, and
  -- no shorter than the leases of it live.
  local function stored(nums, level, gen, out0, out1, rate, cap)
    local life = ceil((cap - level) / rate) + 1
    if out0 + out1 == 0 and gen <= floor(now / T) then
      return nums .. pack('<BI7I6', 1, level, now), life
    end
    return nums .. pack('<BI7I6I5I5I5', 2, level, now, gen, out0, out1), life + (gen + 2) * T - now
  end

  return { fill = fill, refill = refill, rotate = rotate, settle = settle, lend = lend, stored = stored }
end
