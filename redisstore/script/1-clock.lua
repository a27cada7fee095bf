-- The tally: decides all buckets of one request and spends, in one atomic step.
--
-- KEYS[i] is a bucket, ARGV[i] what to do with it, packed little-endian:
--
--   alg B, how B, flags B, cost I5, then the numbers: revision I6, n1 I6, n2 I5, n3 I5
--   flags 4:  queue I6, want I5, pods I4, max_cost I5
--   flags 8:  four edges of a calendar's windows, I6 each
--   flags 16: count B, then for each report generation I6, spent I5, back I5
--   flags 32: receipt I7
--   flags 128: reservation, 16 bytes, ttl ms I4
--
-- alg: 1 token_bucket (n1 burst, n2 period ms, n3 rate), 2 sliding_window,
-- 3 sliding_log, 4 fixed_window (n1 capacity, n2 window ms, n3 align + 4 × calendar).
-- how: 0 take, 1 add, 2 back, 3 peek, 4 stamp, 5 undo, 6 reset, 7 reserve, 8 commit,
-- 9 cancel.
-- flags: 1 shadow, 2 not fresh, 64 newer numbers of a window apply from its next one.
--
-- The answer is one string: status B (0 denied, 1 spent, 2 no calendar window
-- fits), now I6, then a record an op, whose bit 0 says whether the op was ok
-- and whose bits from 8 on are what an op on a reservation met, see 5-op.lua:
--
--   0/1: level I7, before spending
--   4/5: level I7, queue I6, lease I5, generation I6, lease ms I5, out I5
--   2/3: the whole view, see `tell` in 5-op.lua
--
-- A stored bucket begins with its numbers as they came (22 bytes), then kind B:
--
--   1 token bucket: level I7, ts I6         2 the same with leases: + generation I5, out0 I5, out1 I5
--   3 sliding window: start, prev, cur I6   4 fixed window: start, end, cur I6
--
-- Plus 16 where reservations follow, a count B and for each: id 16 bytes, end I6, cost
-- I4 (0: settled), window start I6.
--
-- Order of work: every op is read, checked and decided first; nothing is
-- written before all of it is known to be possible, and nothing can fail after
-- the first write. A denial writes only what must outlive it: reports it
-- carried, numbers that changed, a clock that stepped back. All numbers are
-- whole and at most 2^53, where a double stops being exact; unsigned fields
-- admit no negatives, fractions or NaN.
--
-- Building a closure costs as much as a field read from the store, so that each
-- part below is one function that builds the rest at its first use: a plain take
-- on a token bucket builds none.

local call, pcall = redis.call, redis.pcall
local unpack, pack, sub = struct.unpack, struct.pack, string.sub
local floor, ceil = math.floor, math.ceil
local EXACT = 9007199254740992 -- 2^53
local MOST = 31622400000 -- 366 days in ms
local MAX_COST = 1000000000
local T = 500 -- ms of a lease generation

local clock = call('TIME') -- the only clock; read once, since it moves inside a script
local now = clock[1] * 1000 + floor(clock[2] / 1000)

-- div is floor(x/y), exact also where a double's quotient would round up.
local function div(x, y)
  if x < EXACT / 2 then return floor(x / y) end
  return (x - math.fmod(x, y)) / y
end
