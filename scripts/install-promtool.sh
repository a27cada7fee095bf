#!/usr/bin/env bash
# Installs promtool, with which the tests check deploy/alerts.yaml, if it is missing.
# It is taken out of the package prometheus alone: to install that would start a
# server and bring its web pages.
set -euo pipefail

if command -v promtool >/dev/null; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "promtool 2.42 or later is needed on the PATH; tests that want it are skipped" >&2
  exit 0
fi

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir" # apt drops its rights to download
for try in 1 2 3; do
  if as_root apt-get update -qq && (cd "$dir" && apt-get download -qq prometheus); then
    dpkg-deb -x "$dir"/prometheus_*.deb "$dir/package"
    as_root install -m 755 "$dir/package/usr/bin/promtool" /usr/local/bin/promtool
    promtool --version 2>&1 | head -1
    exit 0
  fi
  echo "install promtool: try $try failed" >&2
  sleep $((try * 5))
done
exit 1
