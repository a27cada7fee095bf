#!/usr/bin/env bash
# Installs Debian's postgresql, which the tests start themselves on private ports, if
# it is missing. The package makes no cluster and starts nothing.
set -euo pipefail

if command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "PostgreSQL 13 or later is needed; tests that want it are skipped" >&2
  exit 0
fi

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Read by the package's scripts: without it they make a cluster and start it.
no_cluster=/etc/postgresql-common/createcluster.conf
if [ ! -e "$no_cluster" ]; then
  as_root mkdir -p "$(dirname "$no_cluster")"
  printf 'create_main_cluster = false\nstart_conf = manual\n' | as_root tee "$no_cluster" >/dev/null
fi

for try in 1 2 3; do
  if as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o Dpkg::Options::=--force-confold postgresql; then
    ls -d /usr/lib/postgresql/*
    exit 0
  fi
  echo "install postgresql: try $try failed" >&2
  sleep $((try * 5))
done
exit 1
