# Shortcuts for the pipeline. Every target but clean and help first creates or updates .venv if necessary.
#
#   make train EXPERIMENT=captions ARGS="seed=2"
#   make evaluate CHECKPOINT=outputs/captions-en-de-seed.2

PYTHON ?= python3
EXPERIMENT ?=
CHECKPOINT ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: setup train test lint evaluate translate tensorboard benchmark clean help
.DELETE_ON_ERROR:

setup: $(READY) ## create .venv and install mt and its development tools

train: $(READY) ## train and score a model: EXPERIMENT=name (default multi30k), ARGS="key=value ..."
	@$(BIN)/mt train $(if $(EXPERIMENT),experiment=$(EXPERIMENT)) $(ARGS)

test: lint ## run lint, type checks and tests
	$(BIN)/python -m pytest

lint: $(READY) ## run ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

evaluate: needs-checkpoint $(READY) ## score a run: CHECKPOINT=outputs/name, ARGS="key=value ..."
	$(BIN)/mt evaluate "checkpoint=$(CHECKPOINT)" $(ARGS)

translate: needs-checkpoint $(READY) ## translate standard input: CHECKPOINT=outputs/name (make -s prints only translations)
	$(BIN)/mt translate "checkpoint=$(CHECKPOINT)" $(ARGS)

tensorboard: $(READY) ## show the curves of all runs in a browser
	$(BIN)/tensorboard --logdir outputs

benchmark: $(READY) ## compare speed with other tools: ARGS=--install the first time; ARGS=--quick takes 5 minutes
	$(BIN)/python scripts/benchmark.py $(ARGS)

clean: ## remove caches and build files, but not .venv, data and outputs
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
	find mt scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile
	@echo 'PYTHON=python3.12 chooses the Python for .venv.'

.PHONY: needs-checkpoint
needs-checkpoint:
	@test -n "$(CHECKPOINT)" || { echo 'error: which run? CHECKPOINT=outputs/<run>' >&2; exit 2; }

# The stamp is written last, so that an interrupted installation starts again
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo 'error: no $(PYTHON) here: make PYTHON=python3.12 $(MAKECMDGOALS)' >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "error: mt needs Python 3.11 or newer and $(PYTHON) is $$($(PYTHON) --version):" \
	        'make PYTHON=python3.12 $(MAKECMDGOALS)' >&2; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { \
	    echo 'error: $(PYTHON) cannot make $(VENV): install its venv package (Debian, Ubuntu: apt install python3-venv)' >&2; \
	    exit 2; }
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -e '.[dev]' -c constraints.txt
	@touch $(READY)
