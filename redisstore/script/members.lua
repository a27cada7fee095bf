-- The membership: a pod says that it lives, and is told how many do.
--
-- KEYS[1] is a sorted set: pod → when it last beat, in ms of this server's clock.
-- ARGV[1] is the pod, ARGV[2] for how many ms a beat counts.
-- The answer: how many pods live, this one included, and 1 if it was not among
-- them before, else 0.

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local life = tonumber(ARGV[2])
if not (life and life >= 1 and life <= 3600000) then
  return redis.error_reply('TALLY the life of a beat is 1 ms to an hour')
end

-- After the clock stepped back, beats lie ahead of it, and a dead pod's would
-- until the clock has caught up: they count as of now, so many at a time.
for _, pod in ipairs(call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf', 'LIMIT', 0, 100)) do
  call('ZADD', KEYS[1], now, pod)
end
local joined = call('ZADD', KEYS[1], now, ARGV[1])
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - life))
call('PEXPIRE', KEYS[1], life)
return { call('ZCARD', KEYS[1]), joined }
