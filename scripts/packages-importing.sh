#!/usr/bin/env bash
# Prints the packages whose code or tests import a package of this module, and
# that package itself.
set -euo pipefail

wanted="$(go list -m)/$1"
go list -f '{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}' ./... |
  awk -v want="$wanted" '{ gsub(/[][]/, " "); for (i = 1; i <= NF; i++) if ($i == want) { print $1; next } }'
