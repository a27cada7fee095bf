#!/usr/bin/env bash
# Installs the gateways that internal/gateways starts: NGINX and HAProxy from Debian, and,
# if asked for ("install-gateways.sh caddy"), Caddy from its source: two minutes and
# 80 MB, once, kept in ~/.cache/tallygate/bin. Services that the packages start by
# themselves are stopped again.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = caddy ]; then
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/tallygate/bin
  if [ ! -x "$cache/caddy" ] || [ tools/caddy/go.sum -nt "$cache/caddy" ]; then
    echo "building caddy; this takes some minutes" >&2
    GOBIN=$cache "${GO:-go}" install -C tools/caddy -trimpath github.com/caddyserver/caddy/v2/cmd/caddy
  fi
fi

# Servers lie in sbin, where a user's PATH may not lead.
PATH=$PATH:/usr/sbin:/sbin
missing=()
command -v nginx >/dev/null || missing+=(nginx-light)
command -v haproxy >/dev/null || missing+=(haproxy)
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "not installed: ${missing[*]}; tests that want them are skipped" >&2
  exit 0
fi

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

for try in 1 2 3; do
  if as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; then
    for name in nginx haproxy; do
      as_root service "$name" stop >/dev/null 2>&1 || true
    done
    exit 0
  fi
  echo "install ${missing[*]}: try $try failed" >&2
  sleep $((try * 5))
done
exit 1
