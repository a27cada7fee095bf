-- Yardstick: the token bucket script that is usually published, two fields of a
-- hash a bucket and three commands, extended to several buckets in one call.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local cost = tonumber(ARGV[#KEYS * 2 + 1])
local allowed, retry = 1, 0
local levels = {}
for i = 1, #KEYS do
  local rate, burst = tonumber(ARGV[i * 2 - 1]), tonumber(ARGV[i * 2])
  local bucket = redis.call('HMGET', KEYS[i], 'tokens', 'ts')
  local tokens = tonumber(bucket[1]) or burst * 1000
  local ts = tonumber(bucket[2]) or now
  tokens = math.min(burst * 1000, tokens + (now - ts) * rate)
  levels[i] = tokens
  if tokens < cost * 1000 then
    allowed = 0
    retry = math.max(retry, math.ceil((cost * 1000 - tokens) / rate))
  end
end
local answer = { allowed, retry }
for i = 1, #KEYS do
  local rate, burst = tonumber(ARGV[i * 2 - 1]), tonumber(ARGV[i * 2])
  if allowed == 1 then levels[i] = levels[i] - cost * 1000 end
  redis.call('HSET', KEYS[i], 'tokens', levels[i], 'ts', now)
  redis.call('PEXPIRE', KEYS[i], math.ceil(burst * 1000 / rate) + 1000)
  answer[i + 2] = math.floor(levels[i] / 1000)
end
return answer
