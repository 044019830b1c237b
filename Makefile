# Targets describe themselves: `make` lists every line of the form "name: ... ## text".
#
# Needed: Go, git, make. What else there is gets used (a C compiler for the race detector, Docker or
# redis-server for the integration tests), and what is missing is said.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tools are pinned here and stay out of go.mod: whoever imports the library must not meet them.
GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION       := v0.12.0

# ./bin, not GOBIN: another project's version of a tool must be neither used nor replaced.
BIN           := $(CURDIR)/bin
GOLANGCI_LINT := $(BIN)/golangci-lint
GOFUMPT       := $(BIN)/gofumpt

# Every module of the repository, the root first. Found, not listed, so that a new module cannot be forgotten;
# files that are not committed yet count. Outside a git checkout (a source archive) find does it.
MODULES := $(shell { git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' 2>/dev/null \
	| grep . || find . -name go.mod -not -path '*/testdata/*' | sed 's|^\./||'; } \
	| while read -r f; do [ -f "$$f" ] && dirname "$$f"; done | sort -u)

# The race detector needs cgo, and cgo a C compiler.
RACE := $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && command -v $$(go env CC) >/dev/null && echo -race)

# What a caller may add, as in: make test-unit TESTFLAGS='-run Renew -v'
TESTFLAGS  ?=
BENCHFLAGS ?=

TEST = go test $(RACE) -shuffle=on -timeout=20m $(TESTFLAGS)

# each_module runs a command in every module, and names the module, for most Go commands do not.
# It goes through all of them before it fails: one run should tell everything there is to mend.
define each_module
	failed=; \
	for module in $(MODULES); do \
		echo "==> $$module: "$(1); \
		(cd "$$module" && $(2)) || failed="$$failed $$module"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed in:$$failed" >&2; exit 1; fi
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## see a lock survive the loss of nodes; needs nothing but Go
	go run ./cmd/redlock demo

.PHONY: test
test: check-go race-note backend ## run the tests of every module, and a few thousand random histories
	@$(call each_module,test,$(TEST) ./...)
	@# The race detector leaves time for a few hundred histories only.
	@[ -z "$(RACE)" ] || go test ./internal/sim -count=1 -run '^(TestPromises|TestFencing)$$' $(TESTFLAGS)

.PHONY: test-unit
test-unit: check-go race-note ## run the tests of the root module; needs neither Docker nor redis-server
	$(TEST) ./...

.PHONY: test-integration
test-integration: check-go race-note backend ## run the tests against real nodes (REDLOCK_TEST_BACKEND=container|process|embedded)
	cd integration && $(TEST) ./...

# Without a demand for one kind of nodes, the matrix is tried on both kinds of real ones.
MATRIX_BACKENDS ?= $(or $(REDLOCK_TEST_BACKEND),container process)

.PHONY: fault-matrix
fault-matrix: check-go ## try every fault on real nodes, print what was seen and keep it in docs/fault-matrix.md
	@parts=$$(mktemp -d); trap 'rm -rf "$$parts"' EXIT; failed=; \
	cp integration/matrix/header.md "$$parts/0.md"; \
	for backend in $(MATRIX_BACKENDS); do \
		(cd integration && REDLOCK_TEST_BACKEND=$$backend go test ./matrix -count=1 -timeout=15m -run '^TestFaultMatrix$$' $(TESTFLAGS) \
			-args -markdown "$$parts/$$backend.md" >&2) || failed="$$failed $$backend"; \
	done; \
	cat "$$parts"/*.md | tee docs/fault-matrix.md; \
	if [ -n "$$failed" ]; then echo "red on:$$failed" >&2; exit 1; fi

# go test -v, as only that shows progress.
HISTORIES ?= 100000

.PHONY: soak
soak: check-go ## judge HISTORIES (100000) random histories in virtual time, and as many again of fencing alone
	go test ./internal/sim -count=1 -timeout=0 -v -run '^(TestPromises|TestFencing)$$' $(TESTFLAGS) -histories $(HISTORIES)

MUTANTFLAGS ?=

.PHONY: mutants
mutants: check-go ## put one bug after another into a copy of the library; fail if the tests stay green (MUTANTFLAGS='-run renew')
	go run ./internal/sim/mutants $(MUTANTFLAGS)

# Fuzzers are found, not listed: one that is forgotten finds nothing. One that is red does not keep the others from
# being run; what it found is in the testdata/fuzz beside it, to be committed with the repair.
FUZZTIME ?= 10s

.PHONY: fuzz
fuzz: check-go ## run every fuzzer of every module for FUZZTIME (10s)
	@failed=; \
	while IFS=: read -r file name; do \
		echo "==> $$(dirname "$$file"): $$name"; \
		(cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) .) || failed="$$failed $$name"; \
	done < <(grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's/:func /:/' | sort); \
	if [ -n "$$failed" ]; then echo "found something:$$failed" >&2; exit 1; fi

MODEL ?=

.PHONY: model
model: ## explore the model of the algorithm with spin; MODEL=name tells one counterexample (docs/model)
	@docs/model/run $(MODEL)

.PHONY: backend
backend: ## say which nodes the integration tests would use, and why
	@cd integration && go run ./cmd/backend

# A quick or partial run (BENCHFLAGS=-quick, BENCHFLAGS="-rows 'pair|hung'") prints its tables and keeps nothing.
.PHONY: bench
bench: check-go ## compare with other lock libraries on local nodes (or REDLOCK_NODES), and keep the tables in docs/benchmarks.md
	cd bench && go run . -docs ../docs $(BENCHFLAGS)

.PHONY: bench-go
bench-go: check-go ## run the Go benchmarks of every module
	@$(call each_module,bench-go,go test -run '^$$' -bench . -benchmem $(BENCHFLAGS) ./...)

.PHONY: bench-smoke
bench-smoke: check-go ## run every benchmark once, to see that it still works; the figures mean nothing
	@$(call each_module,bench-smoke,go test -run '^$$' -bench . -benchtime 1x $(BENCHFLAGS) ./...)

.PHONY: api
api: check-go ## write down what the public packages export, in internal/api/api.txt, after a change that is meant
	go test ./internal/api -count=1 -run '^TestWhatIsExportedIsWhatWasMeantToBe$$' -update
	@git --no-pager diff --stat -- internal/api/api.txt

.PHONY: cover
cover: check-go ## measure the coverage of the root module, in coverage.out
	go test -coverprofile=coverage.out -coverpkg=./... $(TESTFLAGS) ./...
	go tool cover -func=coverage.out | tail -n 1

# gofumpt is asked beside golangci-lint since it reads files that the build tags of this platform leave out.
.PHONY: lint
lint: check-go $(GOLANGCI_LINT) $(GOFUMPT) ## check the code of every module
	@$(call each_module,lint,$(GOLANGCI_LINT) run ./...)
	@unformatted=$$($(GOFUMPT) -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):" $$unformatted >&2; exit 1; fi

.PHONY: fmt
fmt: $(GOFUMPT) ## format the code
	$(GOFUMPT) -w .

.PHONY: tidy
tidy: ## tidy the go.mod of every module
	@$(call each_module,tidy,go mod tidy)

# `go mod tidy -diff` rather than a tidy and a `git diff`: it changes nothing, and so neither fails on go.mod
# edits that are tidy but not committed yet, nor leaves the work tree altered.
.PHONY: tidy-check
tidy-check: check-go ## fail when a go.mod or go.sum is not tidy
	@$(call each_module,tidy-check,go mod tidy -diff)

.PHONY: image
image: ## build a local Redis image for the container tests, where no registry can be reached
	integration/image/build

.PHONY: clean
clean: ## remove what the other targets left
	rm -rf $(BIN) coverage.out
	go clean -testcache

# Nested modules may need a newer Go than the library does. With GOTOOLCHAIN=auto the go command fetches it;
# where it may not or cannot, every later message would only be a consequence of this one.
.PHONY: check-go
check-go:
	@for module in $(MODULES); do \
		(cd "$$module" && go list -m >/dev/null) || { \
			echo "module $$module needs Go $$(awk '$$1 == "go" {print $$2}' "$$module/go.mod"), but this is $$(go env GOVERSION)" \
				"with GOTOOLCHAIN=$$(go env GOTOOLCHAIN), and no newer toolchain could be had; install one" \
				"(the library alone: make test-unit MODULES=.)" >&2; \
			exit 1; }; \
	done

.PHONY: race-note
race-note:
	@[ -n "$(RACE)" ] || echo "note: without the race detector, which needs cgo and a C compiler (CGO_ENABLED=$$(go env CGO_ENABLED), CC=$$(go env CC))"

# install_tool installs $(2)@$(3) into ./bin as $(1), unless that very version is there: `go version -m` knows
# the module version that a program was built from, whatever the program itself prints.
define install_tool
	@if ! go version -m $(BIN)/$(1) 2>/dev/null | awk -v module=$(2) -v version=$(3) \
		'$$1 == "mod" && index(module, $$2) == 1 && $$3 == version {found = 1} END {exit !found}'; then \
		echo "installing $(1) $(3)"; \
		GOBIN=$(BIN) go install $(4) $(2)@$(3); \
	fi
endef

# Phony, as a file's date does not tell its version.
.PHONY: $(GOLANGCI_LINT) $(GOFUMPT)
$(GOLANGCI_LINT):
	$(call install_tool,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,$(GOLANGCI_LINT_VERSION))
$(GOFUMPT):
	$(call install_tool,gofumpt,mvdan.cc/gofumpt,$(GOFUMPT_VERSION))
