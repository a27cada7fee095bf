#!/usr/bin/env bash
# Installs redis-server, which the tests start themselves on private ports, if it
# is missing. A service that the package starts by itself is stopped again.
set -euo pipefail

if command -v redis-server >/dev/null; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "redis-server 7 or later is needed on the PATH; tests that want it are skipped" >&2
  exit 0
fi

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

for try in 1 2 3; do
  if as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server; then
    as_root service redis-server stop >/dev/null 2>&1 || true
    redis-server --version
    exit 0
  fi
  echo "install redis-server: try $try failed" >&2
  sleep $((try * 5))
done
exit 1
