-- The request: every op is decided, then all are written or none.
local count = #KEYS
for i = 2, count do
  for j = 1, i - 1 do
    if KEYS[i] == KEYS[j] then return redis.error_reply('TALLY a bucket is named twice') end
  end
end

local spent = 1 -- until an enforced take is denied
local records = {}
local value, life = {}, {} -- token buckets to write when spent, and for how many ms
local owed, owed_life -- the same to write when denied
local on_spend, on_denial, decide -- other writes, by op
local lease

for i = 1, count do
  local key, arg = KEYS[i], ARGV[i]
  local alg, how, flags, cost, burst, period, rate
  if #arg >= 30 then alg, how, flags, cost, burst, period, rate = unpack('<BBBI5xxxxxxI6I5I5', arg) end
  -- s is a string, false for a missing bucket, or a table for what is no string.
  -- A log is looked at first: each failing GET would count as the server's error.
  local s = {}
  local kind = alg == 3 and call('TYPE', key).ok or 'string'
  if kind == 'string' then s = pcall('GET', key) elseif kind == 'none' then s = false end

  -- A take on a token bucket whose numbers are those stored: level is what it
  -- has now, before spending. Whatever is not that plain stays nil.
  local level, cap, nums, gen, out0, out1
  if alg == 1 and how == 0 and cost <= MAX_COST and ((flags == 0 and #arg == 30) or (flags == 4 and #arg == 50) or (flags == 20 and #arg > 50 and arg:byte(51) <= 2 and #arg == 51 + 16 * arg:byte(51))) then
    cap, nums = burst * period, sub(arg, 9, 30)
    if not s then
      -- An unknown bucket is a full one; its numbers are new here and may be wrong.
      if burst > 0 and period > 0 and rate > 0 and cap <= EXACT and cap / rate <= MOST then level = cap end
      gen, out0, out1 = floor(now / T), 0, 0
    elseif #s >= 36 and sub(s, 1, 22) == nums then
      local kind, was, ts = unpack('<BI7I6', s, 23)
      if kind == 1 and #s == 36 and ts <= now then
        level, out0, out1 = cap, 0, 0
        local add = (now - ts) * rate -- exact below 2^53, and above it only compared
        if add < cap - was then level = was + add end
        gen = floor(now / T)
      elseif kind == 2 and #s == 51 and ts <= now then
        lease = lease or leasing()
        gen, out0, out1 = unpack('<I5I5I5', s, 37)
        level = lease.refill(was, ts, gen, out0, out1, rate, period, burst, cap)
        gen, out0, out1 = lease.rotate(gen, out0, out1)
      end
    end
  end

  if not level then
    if not decide then
      on_spend, on_denial = {}, {}
      decide = careful(records, on_spend, on_denial)
    end
    local ok, stop = decide(i, key, arg, s)
    if stop then return stop end
    if not ok then spent = 0 end
  else
    if flags > 0 or out0 + out1 > 0 then lease = lease or leasing() end
    if flags == 20 then
      local changed
      level, out0, out1, changed = lease.settle(arg, 51, level, gen, out0, out1, period, cap)
      if s and changed then
        owed, owed_life = owed or {}, owed_life or {}
        owed[i], owed_life[i] = lease.stored(nums, level, gen, out0, out1, rate, cap)
      end
    end
    local left = level - cost * period
    if left < 0 then
      spent = 0
      records[i] = lease and pack('<BI7I6I5I6I5I5', 4, level, 0, 0, 0, 0, out0 + out1) or pack('<BI7', 0, level)
    elseif not lease then
      records[i] = pack('<BI7', 1, level)
      if cost > 0 then
        value[i] = nums .. pack('<BI7I6', 1, left, now)
        life[i] = ceil((cap - left) / rate) + 1
      end
    else
      local out, queue, loan = out0 + out1, 0, 0
      if flags > 0 and cost > 0 then left, queue, loan = lease.lend(arg, left, out, burst, rate, period) end
      records[i] = pack('<BI7I6I5I6I5I5', 5, level, queue, loan, gen, math.min((gen + 2) * T - now, 2 * T) - 1, out)
      if cost > 0 then
        value[i], life[i] = lease.stored(nums, left, gen, out0 + loan, out1, rate, cap)
      elseif owed then
        value[i], life[i] = owed[i], owed_life[i]
      end
    end
  end
end

for i = 1, count do
  if spent == 1 and value[i] then
    call('PSETEX', KEYS[i], life[i], value[i])
  elseif spent == 0 and owed and owed[i] then
    call('PSETEX', KEYS[i], owed_life[i], owed[i])
  elseif decide then
    local act = (spent == 1 and on_spend or on_denial)[i]
    if act then act() end
  end
end

return pack('<BI6', spent, now) .. table.concat(records)
