#!/usr/bin/env bash
# Builds the other limiters that `make bench-others` measures beside ours into
# ~/.cache/tallygate/bin: envoyproxy/ratelimit's server and gubernator. It takes some
# minutes and, where their go.mod asks for a newer Go than the one installed, fetches it.
set -euo pipefail
cd "$(dirname "$0")/../tools/others"

GOTOOLCHAIN=auto GOBIN=${XDG_CACHE_HOME:-$HOME/.cache}/tallygate/bin "${GO:-go}" install \
  github.com/envoyproxy/ratelimit/src/service_cmd \
  github.com/gubernator-io/gubernator/v2/cmd/gubernator
