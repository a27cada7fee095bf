# The first target is what `make` alone runs. Lines with ## are `make help`.
GO   ?= go
TIME ?= 30s
# One goroutine has nothing to race, nor has what drives other programs, and the detector
# makes some of it ten times as slow.
ALONE := ./internal/algorithm ./internal/arch ./internal/bench ./internal/envoyconfig ./internal/gateways \
	./internal/rulestore/sqlite ./internal/sim ./limit ./store ./storetest
# Packages whose tests wait for servers most of the time: the others run beside them.
LONG := ./redisstore ./internal/rulestore/postgres ./cmd/tallygate ./internal/admin
LINT := $(GO) tool -modfile=tools/go.mod golangci-lint

.PHONY: check
check: fmt-check arch vet lint test ## all checks, the quick ones first (the default)

.PHONY: run
run: ## start the service on the embedded store
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/tallygate
	exec bin/tallygate serve

.PHONY: test
test: ## all tests, with Redis, PostgreSQL, race detector, shuffled
	scripts/install-redis.sh
	scripts/install-postgres.sh
	scripts/install-promtool.sh
	scripts/install-gateways.sh clients
	$(GO) test -race -shuffle=on -skip '^TestMemoryStore_agreesWithTheModel$$' \
		$$($(GO) list $(LONG) ./store $$($(GO) list ./... | grep -vxF "$$($(GO) list $(ALONE))"))
	$(GO) test -shuffle=on $(ALONE)
	$(GO) test -run '^$$' -bench . -benchtime 1x $$(scripts/packages-benchmarked.sh)
	$(GO) test -count=1 -timeout 8m ./internal/faults -faults short

.PHONY: test-faults
test-faults: ## the fault suite alone, with its long faults
	scripts/install-redis.sh
	$(GO) test -count=1 -timeout 40m -v ./internal/faults -faults full

.PHONY: test-redis
test-redis: ## only the tests that start Redis servers
	scripts/install-redis.sh
	$(GO) test -race -shuffle=on -count=1 $$(scripts/packages-importing.sh internal/redistest)

.PHONY: test-postgres
test-postgres: ## only the tests that start PostgreSQL
	scripts/install-postgres.sh
	$(GO) test -race -shuffle=on -count=1 $$(scripts/packages-importing.sh internal/pgtest)

.PHONY: test-gateways
test-gateways: ## gateways and gRPC clients alone, with a Caddy newer than Debian's
	scripts/install-redis.sh
	scripts/install-gateways.sh caddy clients
	$(GO) test -count=1 ./internal/gateways

.PHONY: bench
bench: ## yardsticks and ours side by side
	scripts/install-redis.sh
	$(GO) test -count=1 -v -timeout 30m -run '^TestFigures$$' ./internal/bench -figures

.PHONY: bench-others
bench-others: ## envoyproxy/ratelimit and gubernator, which it builds, beside ours
	scripts/install-redis.sh
	scripts/install-others.sh
	$(GO) test -count=1 -v -timeout 10m -run '^TestFigures$$/^other' ./internal/bench -figures

.PHONY: load
load: ## wrk against a server on the embedded store
	scripts/load.sh

.PHONY: fleet
fleet: ## six servers on one Redis, under load
	scripts/install-redis.sh
	scripts/fleet.sh

.PHONY: fuzz
fuzz: ## every fuzz target for TIME=30s each
	scripts/fuzz.sh $(TIME)

.PHONY: build
build: ## the binary, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: generate
generate: ## generated files; fails if they had drifted
	scripts/generate.sh

.PHONY: alerts
alerts: ## the alert rules of deploy, by promtool
	scripts/install-promtool.sh
	cd deploy && promtool check rules alerts.yaml && promtool test rules alerts_test.yaml

.PHONY: arch
arch: ## who imports whom, and sizes
	$(GO) test -count=1 ./internal/arch

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: lint
lint: ## golangci-lint, built from tools/go.mod
	$(LINT) run

.PHONY: fix
fix: ## have the linter mend what it can
	$(LINT) run --fix

.PHONY: fmt
fmt: ## rewrite files as the formatters want them
	$(LINT) fmt

.PHONY: fmt-check
fmt-check: ## name files that gofmt would change
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted (make fmt):"; echo "$$files"; exit 1; fi

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile
