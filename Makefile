# Every verb first makes sure that .venv matches pyproject.toml, so each works from a clean clone.

SEEDS ?= 1000
JOBS  ?= 3

BIN    := .venv/bin
# Tests of one group share something that is slow to start, and so a process.
PYTEST := $(BIN)/python -m pytest -q --dist loadgroup --durations 30 -n
ROTA   := $(BIN)/rota

# Whatever the shell says: what is compiled is kept, because the suite starts hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test test-full test-long check check-code check-tests sim bench docs pictures clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/ready/test ## everything that tests and checks use: tools, servers, a browser, Bazel

# `scripts/setup run` needs no root and installs no test tools; `scripts/setup test` says what it installs and why.
.venv/ready/%: pyproject.toml scripts/setup
	@scripts/setup $*

run: .venv/ready/run ## start the service with an example deployed, run it and stay up: http://127.0.0.1:7434/
	@$(BIN)/python scripts/show

test: setup ## run before a commit is handed in: every part, and each real component, in ten minutes
	HYPOTHESIS_PROFILE=quick $(PYTEST) $(JOBS) -m "not full and not long" tests

# Its tests wait for processes more than they compute.
test-full: setup ## what `make test` leaves out, and all examples of properties; a build server runs both
	$(PYTEST) $$((2 * $(JOBS))) -m "(full or hypothesis) and not long" tests

test-long: .venv/ready/long ## tests marked long, then the large simulation campaigns
	HYPOTHESIS_PROFILE=long $(PYTEST) $(JOBS) -m long tests
	$(ROTA) sim --seeds 2000 --jobs $(JOBS)
	$(ROTA) sim --mutants all --jobs $(JOBS)

check: setup ## what to run before a commit: lint, types, layers, quick tests, 40 seeds; about a minute
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-code check-tests

check-code: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo
	$(ROTA) sim --seeds 40

# They compute and do not wait, so more processes than cores only cost.
check-tests: setup
	HYPOTHESIS_PROFILE=quick $(PYTEST) 2 -x -m "not full and not long and not slow" tests/unit tests/contract tests/tidy \
		--ignore tests/contract/test_contract_notices.py --ignore tests/tidy/test_layers.py

sim: setup ## SEEDS=n simulated worlds, then every canary mutant
	$(ROTA) sim --seeds $(SEEDS) --jobs $(JOBS)
	$(ROTA) sim --mutants all --jobs $(JOBS)

bench: setup ## measure, print the table and write bench/results/latest.json
	$(BIN)/python -m bench

docs: setup ## write what is made from code, build the site into build/site, check that all of it agrees with the code
	$(BIN)/python scripts/reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(PYTEST) $(JOBS) tests/docs
	@echo 'the site is in build/site: python3 -m http.server --bind 127.0.0.1 --directory build/site'

pictures: setup ## take the pictures of the documentation, docs/images, of the pages as they are now
	$(BIN)/python scripts/screenshots

clean: ## remove .venv, caches and build output
	rm -rf .venv .rota-example .hypothesis .import_linter_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
