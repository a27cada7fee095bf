#!/usr/bin/env bash
# Lists the packages that have benchmarks.
set -euo pipefail

cd "$(dirname "$0")/.."
grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u
