#!/usr/bin/env bash
# Installs redis-server, which the tests start themselves on private ports, if it
# is missing. A service that the package starts by itself is stopped again. Tries the
# same for gcc (wrong clocks, the race detector) and nft (partitions): tests that want
# them are skipped without.
set -euo pipefail

missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
# nft lies in sbin, where a user's PATH may not lead.
PATH=$PATH:/usr/sbin:/sbin command -v nft >/dev/null || missing+=(nftables)
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "not installed: ${missing[*]}; tests that want them are skipped. redis-server must be 7 or later" >&2
  exit 0
fi

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}
install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

for try in 1 2 3; do
  if as_root apt-get update -qq && install "${missing[@]}"; then
    as_root service redis-server stop >/dev/null 2>&1 || true
    redis-server --version
    exit 0
  fi
  if command -v redis-server >/dev/null; then
    echo "not installed: ${missing[*]}; tests that want them are skipped" >&2
    exit 0
  fi
  # One package that is not to be had must not keep the others away.
  install redis-server || true
  echo "install ${missing[*]}: try $try failed" >&2
  sleep $((try * 5))
done
command -v redis-server >/dev/null
