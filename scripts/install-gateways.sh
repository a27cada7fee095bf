#!/usr/bin/env bash
# Installs the gateways that internal/gateways starts: NGINX, HAProxy and Caddy from
# Debian. What else is named is built from source, once, into ~/.cache/tallygate/bin:
#
#   install-gateways.sh clients   grpcurl and envoyproxy/ratelimit's client: one minute
#                                 on two cores and 70 MB; with the module's versions of
#                                 gRPC and built as its tests are, they share its cache
#   install-gateways.sh caddy     a newer Caddy than Debian's: two minutes and 80 MB
#
# Services that the packages start by themselves are stopped again.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/tallygate/bin

# build MODULE PACKAGE... builds the programs of a module of tools, unless they are newer
# than its go.sum.
build() {
  local module=$1 package old=()
  shift
  for package in "$@"; do
    if [ ! -x "$cache/${package##*/}" ] || [ "tools/$module/go.sum" -nt "$cache/${package##*/}" ]; then
      old+=("$package")
    fi
  done
  if [ ${#old[@]} -gt 0 ]; then
    echo "building ${old[*]##*/}; this takes some minutes" >&2
    GOBIN=$cache "${GO:-go}" install -C "tools/$module" "${old[@]}"
    # go install leaves alone what has not changed.
    touch "${old[@]/#*\//$cache/}"
  fi
}

for name in "$@"; do
  case $name in
    caddy) build caddy github.com/caddyserver/caddy/v2/cmd/caddy ;;
    clients) build clients github.com/fullstorydev/grpcurl/cmd/grpcurl github.com/envoyproxy/ratelimit/src/client_cmd ;;
    *)
      echo "$name is neither caddy nor clients" >&2
      exit 2
      ;;
  esac
done

# Servers lie in sbin, where a user's PATH may not lead.
PATH=$PATH:/usr/sbin:/sbin
missing=()
command -v nginx >/dev/null || missing+=(nginx-light)
command -v haproxy >/dev/null || missing+=(haproxy)
command -v caddy >/dev/null || missing+=(caddy)
command -v curl >/dev/null || missing+=(curl)
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
    for name in nginx haproxy caddy; do
      as_root service "$name" stop >/dev/null 2>&1 || true
    done
    exit 0
  fi
  echo "install ${missing[*]}: try $try failed" >&2
  sleep $((try * 5))
done
exit 1
