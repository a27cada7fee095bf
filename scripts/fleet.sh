#!/usr/bin/env bash
# Six servers on one Redis under load: starts them, offers twice the limit of one
# key over all six in an open loop, and prints what was admitted beside what the
# limit allows, and what it cost the store. Fails if more was admitted, if a check
# failed or was allowed without being counted, or if hardly any limit was served.
#
#   scripts/fleet.sh [SECONDS [CHECKS_PER_SECOND]]
set -euo pipefail

seconds=${1:-20}
offered=${2:-4000}
pods=6 rate=2000 burst=2000
redis_port=18200 first_port=18201

for tool in redis-server redis-cli curl jq; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool is not installed" >&2
    exit 1
  fi
done

dir=$(mktemp -d)
children=()
cleanup() {
  for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
  for child in "${children[@]}"; do wait "$child" 2>/dev/null || true; done
  rm -rf "$dir"
}
trap cleanup EXIT

# redis asks our server, and no other one that may have the port.
redis() { redis-cli -p "$redis_port" -a fleet --no-auth-warning "$@"; }
calls() { redis info commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),.*/\1/p'; }

go build -o "$dir/tallygate" ./cmd/tallygate
cat >"$dir/rules.yaml" <<YAML
rules:
  - {id: fleet, covers_all: true, identity: [api_key], algorithm: token_bucket, rate: $rate, burst: $burst, fail_mode: closed}
YAML

redis-server --port "$redis_port" --bind 127.0.0.1 --requirepass fleet --save '' --dir "$dir" >"$dir/redis.log" 2>&1 &
children+=($!)
servers=()
for ((i = 0; i < pods; i++)); do
  port=$((first_port + i))
  # The deadline is above what two busy cores need: this measures the limit.
  TALLYGATE_STORE_PASSWORD=fleet "$dir/tallygate" serve --http "127.0.0.1:$port" --rules "file:$dir/rules.yaml" \
    --store "redis://127.0.0.1:$redis_port" --store-deadline 250ms --log-level warn >"$dir/pod-$i.log" 2>&1 &
  children+=($!)
  servers+=(--server "http://127.0.0.1:$port")
done

ready() {
  for ((i = 0; i < pods; i++)); do
    curl -fs "http://127.0.0.1:$((first_port + i))/readyz" >/dev/null || return 1
  done
  [ "$(redis zcard tg:pods)" = "$pods" ]
}
for ((try = 0; ; try++)); do
  if ready; then break; fi
  if ((try == 100)); then
    echo "the fleet did not start:" >&2
    cat "$dir"/*.log >&2
    exit 1
  fi
  sleep 0.1
done
sleep 2.5 # every pod beats once more and so knows of all

before=$(calls)
"$dir/tallygate" load "${servers[@]}" --rule fleet --key "acct_$$" --rps "$offered" --workers 128 \
  --duration "${seconds}s" --rate "$rate" --burst "$burst" -o json >"$dir/report.json" || failed=$?
after=$(calls)

jq -r --argjson calls "$((after - before))" --argjson pods "$pods" '
  "six pods, one Redis, one key: \(.checks) checks in \(.duration_s * 100 | round / 100) s (\(.checks_per_s | round)/s, \(.rate)/s due)",
  "admitted \(.envelope.admitted) of at most \(.envelope.most | floor): \(.envelope.part * 10000 | round / 100) %, \(.envelope.over) above the limit",
  "denied \(.denied), degraded \(.degraded), errors \(.errors), unsent \(.unsent)",
  "latency from when due: p50 \(.latency.p50_us) us, p90 \(.latency.p90_us), p99 \(.latency.p99_us), p99.9 \(.latency.p999_us), max \(.latency.max_us)",
  "store calls \($calls): \($calls / .duration_s | round)/s, \($calls / .duration_s / $pods | round)/s a pod, \($calls * 1000 / .checks | round / 10) % of checks"
' "$dir/report.json"
if [ "${failed:-0}" -ne 0 ]; then
  exit "$failed"
fi
jq -e '.errors == 0 and .degraded == 0 and .envelope.part >= 0.95' "$dir/report.json" >/dev/null || {
  echo "a check failed, was not counted, or less than 95 % of the limit was served" >&2
  cat "$dir"/pod-*.log >&2
  exit 1
}
