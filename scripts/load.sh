#!/usr/bin/env bash
# Drives a server with a real client: builds and starts one on the embedded store,
# sends checks with wrk for a while and prints what wrk saw. Fails on an answer
# that is not 200 and on any error of a connection.
set -euo pipefail

seconds=${1:-30}
connections=${2:-64}
address=127.0.0.1:18080
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v wrk >/dev/null; then
  echo "wrk is not installed (on Debian: apt-get install wrk)" >&2
  exit 1
fi

dir=$(mktemp -d)
server=
cleanup() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$dir"
}
trap cleanup EXIT

go build -o "$dir/tallygate" ./cmd/tallygate
(cd "$dir" && exec ./tallygate serve --http "$address" --log-level warn >"$dir/log" 2>&1) &
server=$!
for _ in $(seq 100); do
  if curl -fs "http://$address/readyz" >/dev/null; then break; fi
  sleep 0.1
done

wrk -t 1 -c "$connections" -d "${seconds}s" -s "$here/load.lua" "http://$address/v1/ratelimit:check"
