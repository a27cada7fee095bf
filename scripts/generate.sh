#!/usr/bin/env bash
# Runs the generators and tidies the modules. Fails if that changed a file, so
# that CI sees what somebody forgot to generate; run again after a look at it.
set -euo pipefail

sums() {
  git ls-files -co --exclude-standard -z | { xargs -0 sha256sum 2>/dev/null || true; } | sort -k 2
}

before=$(sums)
go generate ./...
go mod tidy
(cd tools && go mod tidy)
if ! changed=$(diff <(echo "$before") <(sums)); then
  echo "files had drifted from their sources:" >&2
  echo "$changed" | awk '{print "  " $3}' | sort -u >&2
  exit 1
fi
