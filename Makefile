# The one door. `make help` lists what is behind it.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CARGO   ?= cargo
NAME    ?= quorate
THIS    := $(if $(filter-out quorate,$(NAME)), NAME=$(NAME))
OUTPUT  := $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/release
TESTBED := $(OUTPUT)/testbed
# Builds are the caller's; what makes namespaces runs as root, with the caller's tools and caches.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo env "PATH=$$PATH" "HOME=$$HOME" "QUORATE_CACHE=$$QUORATE_CACHE" $(if $(CARGO_TARGET_DIR),"CARGO_TARGET_DIR=$$CARGO_TARGET_DIR"),)

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: up
up: require-linux require-root require-rust require-go ## A real Kubernetes on this machine, with a running etcd cluster of three members
	@$(DOWNLOAD_IN_BACKGROUND)
	@scripts/step programs $(PROGRAMS)
	@for component in kube coredns etcd-3.6; do scripts/step $$component $(TESTBED) build $$component || exit; done
	@$(AS_ROOT) true # asks for a password, if at all, before there is a line to write it into
	@scripts/step bed $(AS_ROOT) $(TESTBED) --name $(NAME) up
	@scripts/step operator $(AS_ROOT) scripts/install-quorate $(TESTBED) $(NAME)
	@$(AS_ROOT) $(TESTBED) --name $(NAME) kubectl apply --filename config/samples/cluster.yaml
	@scripts/step cluster $(AS_ROOT) $(TESTBED) --name $(NAME) kubectl wait --for=condition=AllMembersReady --timeout=180s etcd/example
	@$(AS_ROOT) $(TESTBED) --name $(NAME) kubectl get etcd,pods
	@printf '%s\n' "" "Look around:     export KUBECONFIG=$$($(AS_ROOT) $(TESTBED) --name $(NAME) kubeconfig); kubectl get etcd,etcdmembers,pods" \
	  "                 (no kubectl? make kubectl$(THIS) ARGS='get etcd')" \
	  "Put and get:     make etcdctl$(THIS) ARGS='put hello world'; make etcdctl$(THIS) ARGS='get hello'" \
	  "Break something: kubectl delete pod example-0, and watch it come back; docs/testbed.md has more faults" \
	  "Remove it all:   make down$(THIS)"

.PHONY: down
down: require-root ## Remove it without a trace
	@test -x $(TESTBED) || $(PROGRAMS)
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
FEATURES := --features quorate-agent/real-etcd,quorate-cli/real-etcd,quorate-e2e/bed,quorate-etcd/client,quorate-etcd/real-etcd,quorate-ledger/real-etcd,quorate-operator/real-etcd,quorate-store/real-stores,quorate-testbed/bed
TESTS := $(CARGO) test --release --workspace $(FEATURES)
# More threads than cores, for tests that wait.
AGENT := --test agent -- --test-threads 8
# A thread for each: those that may not run yet wait for their turn.
E2E := --test e2e -- --test-threads 100

# What `up` runs. The features are those of tests, which cost nothing here: with others, `make test` would compile again.
PROGRAMS := $(CARGO) build --release --quiet -p quorate-testbed -p quorate-operator -p quorate-agent --features quorate-testbed/bed,quorate-etcd/real-etcd
# While Rust compiles, which leaves the network idle. Whatever goes wrong is said by the build that needs it.
DOWNLOAD_IN_BACKGROUND := for component in kube coredns etcd-3.6; do (cd crates/testbed/components/$$component && go mod download) > /dev/null 2>&1 & done

.PHONY: test
test: require-linux require-root require-strace require-node lint ## Everything: lint, unit tests, tests against real etcd and on real beds
	@scripts/timed "building the programs" $(CARGO) build --release --workspace $(FEATURES) --quiet
	@scripts/timed "building the tests" $(TESTS) --no-run --quiet
	@scripts/timed "building the other tests" $(TESTS) --test agent --test e2e --no-run --quiet
	@scripts/timed "building Kubernetes, CoreDNS, etcd and an S3" $(TESTBED) build
	@scripts/timed "installing Azurite" $(TESTBED) store-servers
	@trap '$(AS_ROOT) $(TESTBED) --name test down' EXIT; \
	  scripts/timed "tests" $(AS_ROOT) env QUORATE_ETCD_BINARIES="$$($(TESTBED) etcd-binaries)" QUORATE_STORE_SERVERS="$$($(TESTBED) store-servers)" $(TESTS)
	@scripts/timed "tests of the agent" $(AS_ROOT) env QUORATE_ETCD_BINARIES="$$($(TESTBED) etcd-binaries)" $(TESTS) $(AGENT)
	@$(MAKE) --no-print-directory e2e
	@echo "all tests passed"

.PHONY: e2e
e2e: require-linux require-root require-strace ## Only the end-to-end tests, on new beds
	@$(CARGO) build --release --workspace $(FEATURES) --quiet
	@trap 'for bed in e2e e2e-alone e2e-ipv6; do $(AS_ROOT) $(TESTBED) --name $$bed down; done' EXIT; \
	  scripts/timed "end-to-end tests" $(AS_ROOT) env QUORATE_E2E_DEATHS=$${QUORATE_E2E_DEATHS:-1} $(TESTS) $(E2E) $(WITH)

.PHONY: test-unit
test-unit: require-rust ## What needs neither root nor Go
	@scripts/timed "unit tests" $(CARGO) test --release --workspace

.PHONY: lint
lint: require-rust ## Format, clippy and, where cargo-deny is installed, licences and banned crates
	@scripts/timed "format" $(CARGO) fmt --all --check
	@scripts/timed "clippy" $(CARGO) clippy --release --workspace --all-targets --test agent --test e2e --all-features --quiet -- --deny warnings
	@if $(CARGO) deny --version > /dev/null 2>&1; then scripts/timed "cargo deny" $(CARGO) deny check licenses bans sources; \
	  else echo "== cargo deny is not installed: licences and banned crates are not checked"; fi

.PHONY: bench
bench: require-root build ## Measure: beds; a pass of the operator; clusters on a bed; the formats against etcdutl
	@$(AS_ROOT) scripts/bench-bed $(TESTBED)
	@$(CARGO) bench --profile release --workspace $(FEATURES) --bench pass
	@trap '$(AS_ROOT) $(TESTBED) --name bench down' EXIT; \
	  $(AS_ROOT) env QUORATE_E2E_BED=bench $(CARGO) bench --profile release --workspace $(FEATURES) --bench clusters --bench members
	@QUORATE_ETCD_BINARIES=$$($(TESTBED) etcd-binaries) $(CARGO) bench --profile release --workspace $(FEATURES) --bench against_etcdutl

.PHONY: campaign
campaign: require-rust require-root ## What takes too long for make test: many more simulated histories (QUORATE_SIM_SECONDS), planted bugs, long end-to-end tests, an operator that dies at every write
	@scripts/timed "simulated histories" env QUORATE_SIM_SEED=$${QUORATE_SIM_SEED:-$$(date +%s)} QUORATE_SIM_SECONDS=$${QUORATE_SIM_SECONDS:-7200} $(TESTS) --test core safety -- --nocapture
	@scripts/timed "planted bugs" scripts/planted-bugs $(or $(CARGO_TARGET_DIR),target) $(TESTS) --test core
	@QUORATE_E2E_DEATHS=all $(MAKE) --no-print-directory e2e WITH=--include-ignored

.PHONY: nightly
nightly: require-rust ## Fuzz every reader of files for a minute each (needs a C++ compiler too)
	@scripts/timed "fuzzing" scripts/fuzz

.PHONY: images
images: require-linux require-rust ## Images of operator and agent as archives, for a cluster of your own
	@$(PROGRAMS)
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
	@test "$$(uname -sm)" = "Linux x86_64" || { echo "a bed needs Linux on x86_64, this is $$(uname -sm); on a cluster of your own, kubectl apply --server-side --filename config/crd --filename config/install.yaml works from anywhere" >&2; exit 1; }

.PHONY: require-root
require-root:
	@test "$$(id -u)" = 0 || command -v sudo > /dev/null || { echo "a bed makes namespaces and mounts, which takes root, and there is no sudo; without root make lint and make test-unit still work" >&2; exit 1; }

# Tests that slow disks down or let them fail. Installed as the testbed installs what beds need.
# What only tests need, from the machine's own packages.
INSTALL := $(AS_ROOT) apt-get install -y -qq --no-install-recommends
.PHONY: require-strace
require-strace:
	@command -v strace > /dev/null || $(INSTALL) strace || { $(AS_ROOT) apt-get update -qq && $(INSTALL) strace; } \
	  || { echo "strace is not installed: install it, then run make again" >&2; exit 1; }

.PHONY: require-node
require-node:
	@command -v npm > /dev/null || $(INSTALL) nodejs npm || { $(AS_ROOT) apt-get update -qq && $(INSTALL) nodejs npm; } \
	  || { echo "Node.js is not installed, and an emulator of Azure needs it that stores are tested with: install nodejs and npm, then run make again" >&2; exit 1; }

.PHONY: require-go
require-go:
	@command -v go > /dev/null || { echo "Go is not installed: install Go 1.26 or newer and put it on the PATH, then run make again" >&2; exit 1; }

.PHONY: require-rust
require-rust:
	@command -v $(CARGO) > /dev/null || { echo "Rust is not installed: install rustc and cargo 1.95 or newer, then run make again" >&2; exit 1; }
	@command -v cc > /dev/null || { echo "there is no C compiler: install gcc (apt-get install gcc libc6-dev), then run make again" >&2; exit 1; }
