-- What wrk sends and prints, for load.sh: checks of a thousand keys in turn.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local n = 0
function request()
  n = n + 1
  local body = '{"domain":"public-api","attributes":{"plan":"growth","route":"GET /v1/labels","api_key":"acct_' ..
    (n % 1000) .. '","ip":"203.0.113.9"}}'
  return wrk.format(nil, nil, nil, body)
end
function done(summary, latency)
  local e = summary.errors
  local bad = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format("%d checks, %.0f/s, p50 %.2f ms, p99 %.2f ms, %d errors\n", summary.requests,
    summary.requests / summary.duration * 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, bad))
  if bad > 0 or summary.requests == 0 then os.exit(1) end
end
