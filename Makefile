# The one door. `make help` lists what is behind it.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CARGO   ?= cargo
NAME    ?= quorate
OUTPUT  := $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/release
TESTBED := $(OUTPUT)/testbed
# Builds are the caller's; what makes namespaces runs as root, with the caller's tools and caches.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo env "PATH=$$PATH" "HOME=$$HOME" "QUORATE_CACHE=$$QUORATE_CACHE" "CARGO_TARGET_DIR=$$CARGO_TARGET_DIR",)

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: up
up: require-root build ## A real Kubernetes on this machine, with a running etcd cluster of three members
	@$(TESTBED) build
	@$(AS_ROOT) $(TESTBED) --name $(NAME) up
	@scripts/timed "installing the operator" $(AS_ROOT) scripts/install-quorate $(TESTBED) $(NAME)
	@$(AS_ROOT) $(TESTBED) --name $(NAME) kubectl apply --filename config/samples/cluster.yaml
	@scripts/timed "waiting for the etcd cluster" $(AS_ROOT) $(TESTBED) --name $(NAME) kubectl wait --for=condition=AllMembersReady --timeout=180s etcd/example
	@$(AS_ROOT) $(TESTBED) --name $(NAME) kubectl get etcd,pods
	@printf '%s\n' "" "Look around:     export KUBECONFIG=$$($(AS_ROOT) $(TESTBED) --name $(NAME) kubeconfig); kubectl get etcd,etcdmembers,pods" \
	  "                 (no kubectl? make kubectl ARGS='get etcd')" \
	  "Put and get:     make etcdctl ARGS='put hello world'; make etcdctl ARGS='get hello'" \
	  "Break something: kubectl delete pod example-0, and watch it come back; docs/testbed.md has more faults" \
	  "Remove it all:   make down"

.PHONY: down
down: require-root ## Remove it without a trace
	@test -x $(TESTBED) || $(MAKE) --no-print-directory build
	@$(AS_ROOT) $(TESTBED) --name $(NAME) down

.PHONY: kubeconfig
kubeconfig: ## Print the path of the running bed's kubeconfig
	@test -x $(TESTBED) || { echo "nothing is built yet; run make up" >&2; exit 1; }
	@$(AS_ROOT) $(TESTBED) --name $(NAME) kubeconfig

.PHONY: kubectl
kubectl: ## kubectl on the running bed: make kubectl ARGS='get nodes'
	@$(AS_ROOT) $(TESTBED) --name $(NAME) kubectl $(ARGS)

.PHONY: etcdctl
etcdctl: ## etcdctl on the sample cluster: make etcdctl ARGS='member list'
	@$(AS_ROOT) $(TESTBED) --name $(NAME) kubectl exec example-0 --container etcd --quiet -- etcdctl --endpoints https://localhost:2379 \
	  --cacert /etc/quorate/tls/server/ca.crt --cert /etc/quorate/tls/server/tls.crt --key /etc/quorate/tls/server/tls.key $(ARGS)

# One set of features for all builds, so that one build serves them all.
FEATURES := --features quorate-cli/real-etcd,quorate-e2e/bed,quorate-etcd/client,quorate-etcd/real-etcd,quorate-testbed/bed
TESTS := $(CARGO) test --release --workspace $(FEATURES)

.PHONY: test
test: require-linux require-root lint ## Everything: lint, unit tests, tests against real etcd and on real beds
	@scripts/timed "building the programs" $(CARGO) build --release --workspace $(FEATURES) --quiet
	@scripts/timed "building the tests" $(TESTS) --no-run --quiet
	@scripts/timed "building Kubernetes, CoreDNS and etcd" $(TESTBED) build
	@trap '$(AS_ROOT) $(TESTBED) --name test down; $(AS_ROOT) $(TESTBED) --name e2e down' EXIT; \
	  scripts/timed "all tests" $(AS_ROOT) env QUORATE_ETCD_BINARIES="$$($(TESTBED) etcd-binaries)" $(TESTS)
	@echo "all tests passed"

.PHONY: test-unit
test-unit: require-rust ## What needs neither root nor Go
	@scripts/timed "unit tests" $(CARGO) test --release --workspace

.PHONY: lint
lint: require-rust ## Format, clippy and, where cargo-deny is installed, licences and banned crates
	@scripts/timed "format" $(CARGO) fmt --all --check
	@scripts/timed "clippy" $(CARGO) clippy --release --workspace --all-targets --all-features --quiet -- --deny warnings
	@if $(CARGO) deny --version > /dev/null 2>&1; then scripts/timed "cargo deny" $(CARGO) deny check licenses bans sources; \
	  else echo "== cargo deny is not installed: licences and banned crates are not checked"; fi

.PHONY: bench
bench: require-root build ## Measure: beds; clusters on a bed; the formats against etcdutl
	@$(AS_ROOT) scripts/bench-bed $(TESTBED)
	@trap '$(AS_ROOT) $(TESTBED) --name bench down' EXIT; \
	  $(AS_ROOT) env QUORATE_E2E_BED=bench $(CARGO) bench --profile release --workspace $(FEATURES) --bench clusters
	@QUORATE_ETCD_BINARIES=$$($(TESTBED) etcd-binaries) $(CARGO) bench --profile release --workspace $(FEATURES) --bench against_etcdutl

.PHONY: nightly
nightly: require-rust ## Fuzz every reader of files for a minute each (needs a C++ compiler too)
	@scripts/timed "fuzzing" scripts/fuzz

.PHONY: images
images: build ## Images of operator and agent as archives, for a cluster of your own
	@mkdir -p $(OUTPUT)/images
	@scripts/build-images $(TESTBED) $(OUTPUT)/images > /dev/null
	@echo "docker load --input $(OUTPUT)/images/operator.tar; docker load --input $(OUTPUT)/images/agent.tar"

.PHONY: gen
gen: require-rust ## Regenerate the custom resource definitions and the install manifest
	@$(CARGO) build --release --workspace $(FEATURES) --examples --quiet
	@$(OUTPUT)/examples/crds config/crd
	@$(OUTPUT)/examples/install config/install.yaml

.PHONY: build
build: require-linux require-rust
	@$(CARGO) build --release --workspace $(FEATURES)

.PHONY: require-linux
require-linux:
	@test "$$(uname -sm)" = "Linux x86_64" || { echo "a bed needs Linux on x86_64, this is $$(uname -sm); on a cluster of your own, kubectl apply --server-side --filename config/install.yaml works from anywhere" >&2; exit 1; }

.PHONY: require-root
require-root:
	@test "$$(id -u)" = 0 || command -v sudo > /dev/null || { echo "a bed makes namespaces and mounts, which takes root, and there is no sudo; without root make lint and make test-unit still work" >&2; exit 1; }

.PHONY: require-rust
require-rust:
	@command -v $(CARGO) > /dev/null || { echo "Rust is not installed: install rustc and cargo 1.95 or newer, then run make again" >&2; exit 1; }
	@command -v cc > /dev/null || { echo "there is no C compiler: install gcc (apt-get install gcc libc6-dev), then run make again" >&2; exit 1; }
