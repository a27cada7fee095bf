#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for the time given.
set -euo pipefail

time=${1:-30s}
go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do
  targets=$(grep -hos '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | cut -d ' ' -f 2 || true)
  for target in $targets; do
    echo "== $package $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null
  done
done
