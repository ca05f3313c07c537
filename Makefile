# Every command of this project. `make demo` and `make test` do their own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

MACHINE := $(shell uname -m)
MUSL := $(MACHINE)-unknown-linux-musl
# One static file for every host: musl where the target is installed, else glibc linked statically.
TARGET := $(shell test -d "$$(rustc --print target-libdir --target $(MUSL) 2>/dev/null)" && echo $(MUSL) || echo $(MACHINE)-unknown-linux-gnu)
NODE := target/$(TARGET)/release/nodrop-node
NODE_SOURCES := Cargo.toml Cargo.lock schema/node.schema.json $(shell find crates -name '*.rs' -o -name Cargo.toml)
PACKAGES := $(wildcard packages/*)
PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
NO_CARGO := cargo is missing: install Rust >= 1.85, from your distribution or by rustup
LAB_WORKERS := 5 # their tests wait most of their time; the others fill it, at a lower priority
UNIT_WORKERS = $(shell nproc)
NO_LAB := tests/unit tests/slow tests/protocol tests/contract
# They write 75,000 small files. In memory, if there are 2 GB for them and programs may lie there, that
# takes a third of the kernel's time; those of a test that passed go at once.
IN_MEMORY := $(shell findmnt --bytes --noheadings --output=FSTYPE,AVAIL,OPTIONS /dev/shm 2>/dev/null | tail -1 | \
  awk '$$1 == "tmpfs" && $$2 > 2e9 && $$3 !~ /noexec/ {print "PYTEST_DEBUG_TEMPROOT=/dev/shm"}')
# Each start of nodrop in a test, and each worker's collection, would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help build demo test check collect lint rust-check packages suricata times unit bench fuzz lock dist image site release schema clean

help: ## These words
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

build: ## .venv/bin/nodrop and the node binary
	@tools/system-packages build
	@test -x $(NODE) || command -v cargo >/dev/null || { echo "$(NO_CARGO)" >&2; exit 1; }
	+@$(MAKE) --no-print-directory --jobs=2 .venv/ready $(NODE)

demo: build ## Get a Suricata, search how much of the demo trace it carries, show where the report is
	@tools/system-packages demo
	.venv/bin/nodrop image ensure suricata
	.venv/bin/nodrop run experiments/demo.toml

test: ## All tests: unit, namespaces, real Suricata; a skip says why
	@tools/system-packages build
	+@$(MAKE) --no-print-directory --jobs=4 --output-sync=target packages $(NODE) lint suricata collect
	$(PYTEST) -m alone --junitxml=.make/tests/alone.xml $$(grep -lrE 'mark\.alone' --include='test_*.py' tests)
	@mkdir -p .make/tests; nice -n 10 make --no-print-directory --keep-going --jobs=1 rust-check unit >.make/tests/fill.log 2>&1 & fill=$$!; \
	  trap "kill $$fill" INT TERM; failed=0; \
	  $(PYTEST) -n $(LAB_WORKERS) --junitxml=.make/tests/labs.xml $(NO_LAB:%=--ignore=%) tests || failed=$$?; \
	  wait $$fill || failed=$$?; cat .make/tests/fill.log; exit $$failed

times: ## Where the time of the last `make test` went, as CONTRIBUTING.md has it
	@$(PYTHON) tools/test_times.py .make/tests

check: build ## Formats, lints, types and the quick tests that need no root, a minute
	+$(MAKE) --no-print-directory --jobs=2 --output-sync=target NO_LAB='$(filter-out tests/slow,$(NO_LAB))' unit rust-check lint

packages: # they are fetched while pip fetches its own
	@tools/system-packages test

suricata: packages .venv/ready
	$(PYTHON) -m tests.ssh.other_python || true # without its wheels, a test is skipped and says so
	.venv/bin/nodrop image ensure suricata && .venv/bin/nodrop image ensure suricata --with dpdk || true # without one, its tests are skipped and say so

# Seven workers would each compile all tests, while other tests run. The node's link leaves a CPU idle for that.
collect: .venv/tests
	@mkdir -p .make/tests
	@nice $(PYTEST) --collect-only -q tests >.make/tests/collected.log || { cat .make/tests/collected.log; exit 1; }

unit: .venv/tests
	$(IN_MEMORY) $(PYTEST) -q -n $(UNIT_WORKERS) --override-ini=tmp_path_retention_policy=failed --junitxml=.make/tests/unit.xml $(NO_LAB)

lint: .venv/tests
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports

# Each clippy finds other faults: they are errors only with this Rust, and shown with any other. This is no rust-toolchain.toml,
# because rustup would then download that version before `make build`, and not build without a network.
RUST_OF_LINTS := 1.95
# As `cargo clippy` does it, but in the build of the tests: a build of its own took as long as theirs.
NEXT := __CLIPPY_HACKERY__

rust-check:
ifeq ($(shell command -v cargo),)
	@echo "no cargo here: the checks of the Rust code are left out" >&2; test -z "$${CI:-}"
else
	cargo fmt --all --check
	RUSTC_WORKSPACE_WRAPPER=clippy-driver \
	  CLIPPY_ARGS=$$(rustc --version | grep -q '^rustc $(RUST_OF_LINTS)\.' && echo "-D$(NEXT)warnings$(NEXT)" || echo "-W$(NEXT)clippy::all$(NEXT)") \
	  cargo test --quiet --locked --workspace --all-targets $(if $(OLD_RUST),--no-default-features --exclude nodrop-attach)
endif

bench: build .venv/tests ## Speed as ratios of interleaved runs; known rates found; A/A; more of each test (root, 2 h)
	$(PYTHON) tools/bench.py
	$(PYTHON) tools/bench_sink.py
	$(PYTHON) tools/bench_answers.py
	$(PYTHON) tools/bench_aa.py
	$(PYTHON) tools/bench_history.py
	$(PYTHON) tools/bench_fleet.py
	$(PYTHON) tools/bench_report.py
	NODROP_DEPTH=1 $(PYTEST) -m 'depth and alone' $$(grep -lrE 'mark\.alone' --include='test_*.py' tests)
	NODROP_DEPTH=1 $(PYTEST) -m depth -n $(LAB_WORKERS)
	NODROP_KILLS=20 $(PYTEST) -n 2 tests/e2e/test_killed.py tests/ssh/test_killed_elsewhere.py

fuzz: .venv/tests ## Random input for every decoder, SECONDS=60 each (hypothesis; cargo-fuzz if it is there)
	$(PYTHON) tools/fuzz.py $(or $(SECONDS),60)

COMPILE := .make/lock/bin/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

lock: ## Renew requirements.lock (what a user needs), -dev.lock (and the tests), -dist.lock (make dist)
	test -x .make/lock/bin/pip-compile || { python3 -m venv .make/lock && .make/lock/bin/pip install --quiet pip-tools; }
	sed -n 's/^dependencies = //p' packages/*/pyproject.toml | tr -d '[]",' | tr ' ' '\n' | grep -v ^nodrop >.make/lock/packages.in
	$(COMPILE) --extra build --extra docker --extra parquet --extra s3 --extra scaling --output-file requirements.lock pyproject.toml .make/lock/packages.in
	$(COMPILE) --extra dev --constraint requirements.lock --output-file requirements-dev.lock pyproject.toml
	$(COMPILE) --extra dist --constraint requirements.lock --output-file requirements-dist.lock pyproject.toml
	echo uv | $(COMPILE) --output-file requirements-uv.lock -

dist: .make/dist/ready .venv/ready ## Wheel, sdist and SBOM in dist/, built twice and checked
	COLUMNS=80 $(PYTHON) tools/manual.py share
	.make/dist/bin/python tools/dist.py

image: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
image: .make/dist/ready .venv/ready ## A container image with nodrop and Suricata in .make/image, for docker load
	rm -rf .make/image && mkdir -p .make/image
	COLUMNS=80 $(PYTHON) tools/manual.py share
	.make/dist/bin/python -m hatchling build -t wheel -d .make/image
	PYTHONPATH=. $(PYTHON) tools/container.py .make/image/*.whl .make/image/nodrop.tar

site: .venv/tests ## The documentation as a site in .make/site, the same bytes each time
	NO_MKDOCS_2_WARNING=1 SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(PYTHON) -m mkdocs build --quiet --strict
	@echo .make/site/index.html

release: ## Everything of a release in dist/, checked; nothing is tagged or uploaded
	+@$(MAKE) --no-print-directory dist
	+@$(MAKE) --no-print-directory image
	+@$(MAKE) --no-print-directory site
	PYTHONPATH=. $(PYTHON) tools/release.py

schema: .venv/tests ## Renew schema/*.json from the models, the types of node events from crates/
	$(PYTHON) tools/node_schema.py
	$(PYTHON) -m tools.schemas schema

clean: ## Forget everything that was built
	rm -rf .venv target

# Below Rust 1.88 the node is built without the jobs `attach` and `reference-mme`: their codecs need it.
OLD_RUST := $(shell rustc --version 2>/dev/null | awk '{split($$2, v, "."); if (v[1] == 1 && v[2] < 88) print $$2}')

$(NODE): $(NODE_SOURCES)
	@tools/system-packages build
	@command -v cargo >/dev/null || { echo "$(NO_CARGO)" >&2; exit 1; }
	RUSTFLAGS="$(if $(findstring gnu,$(TARGET)),-C target-feature=+crt-static)" \
	  cargo build --quiet --release --locked --package nodrop-node --target $(TARGET) $(if $(OLD_RUST),--no-default-features)
	@touch $@

# uv takes a part of pip's CPU time. Where it cannot be had or finds no registry (it reads no pip.conf), pip does it.
INSTALL = UV_NATIVE_TLS=1 .make/uv/bin/uv pip install --quiet --require-hashes --python $(1)/bin/python --requirement $(2) || \
  $(1)/bin/pip install --quiet --require-hashes --requirement $(2)

.make/uv/ready: requirements-uv.lock
	@tools/system-packages build
	test -x .make/uv/bin/python || python3 -m venv .make/uv
	.make/uv/bin/pip install --quiet --only-binary=:all: --require-hashes --requirement requirements-uv.lock || true
	@touch $@

.venv/ready: requirements.lock pyproject.toml $(PACKAGES:%=%/pyproject.toml) .make/uv/ready
	@tools/system-packages build
	test -x $(PYTHON) || python3 -m venv .venv
	$(call INSTALL,.venv,requirements.lock)
	env -u SOURCE_DATE_EPOCH .venv/bin/pip install --quiet --no-deps --no-build-isolation --editable . $(PACKAGES:%=--editable %) # a bad one ends it
	@touch $@

.make/dist/ready: requirements-dist.lock .make/uv/ready
	test -x .make/dist/bin/python || python3 -m venv .make/dist
	$(call INSTALL,.make/dist,requirements-dist.lock)
	@touch $@

.venv/tests: requirements-dev.lock .venv/ready
	$(call INSTALL,.venv,requirements-dev.lock)
	@touch $@
