# The one door. `make help` lists what is behind it.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CARGO   ?= cargo
NAME    ?= quorate
TESTBED := $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/release/testbed

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: up
up: testbed ## A real Kubernetes on this machine
	@$(TESTBED) --name $(NAME) up

.PHONY: down
down: testbed ## Remove it without a trace
	@$(TESTBED) --name $(NAME) down

.PHONY: kubeconfig
kubeconfig: ## Print the path of the running bed's kubeconfig
	@test -x $(TESTBED) || { echo "nothing is built yet; run make up" >&2; exit 1; }
	@$(TESTBED) --name $(NAME) kubeconfig

.PHONY: test
test: lint test-unit test-bed ## Everything: lint, unit tests, and the tests on beds (root)
	@echo "all tests passed"

.PHONY: test-unit
test-unit: require-rust ## What needs neither root nor Go
	@scripts/timed "unit tests" $(CARGO) test --release --workspace --quiet

.PHONY: test-bed
test-bed: testbed ## The tests that start real beds (root)
	@scripts/timed "programs of the bed" $(TESTBED) build
	@trap '$(TESTBED) --name test down' EXIT; \
	  scripts/timed "tests on beds" $(CARGO) test --release --package quorate-testbed --features bed --test '*'

.PHONY: lint
lint: require-rust ## Format, clippy and, where cargo-deny is installed, licences and advisories
	@scripts/timed "format" $(CARGO) fmt --all --check
	@scripts/timed "clippy" $(CARGO) clippy --release --workspace --all-targets --all-features --quiet -- --deny warnings
	@if $(CARGO) deny --version > /dev/null 2>&1; then scripts/timed "cargo deny" $(CARGO) deny check licenses bans sources; fi

.PHONY: bench
bench: testbed ## Measure a bed: start, memory, removal
	@scripts/bench-bed $(TESTBED)

.PHONY: gen
gen: ## Regenerate generated files
	@echo "nothing is generated yet"

.PHONY: testbed
testbed: require-linux require-rust
	@$(CARGO) build --release --quiet --package quorate-testbed

.PHONY: require-linux
require-linux:
	@test "$$(uname -sm)" = "Linux x86_64" || { echo "a bed needs Linux on x86_64, this is $$(uname -sm); set KUBECONFIG to a cluster of your own" >&2; exit 1; }

.PHONY: require-rust
require-rust:
	@command -v $(CARGO) > /dev/null || { echo "Rust is not installed: install rustc and cargo 1.95 or newer, then run make again" >&2; exit 1; }
	@command -v cc > /dev/null || { echo "there is no C compiler: install gcc (apt-get install gcc libc6-dev), then run make again" >&2; exit 1; }
