# Needs make and a Python 3.11 or newer (PYTHON=/path/to/python to choose one); everything else goes into .venv.
# On Debian and Ubuntu the module venv is a package of its own: python3-venv.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
BUILD := build
JOBS := 2
SOURCES := rank difficulty simulate analyses tests $(wildcard scripts)
STAMP := $(VENV)/.rankgap-installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: all setup demo test format bench clean

all: test

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@python="$(PYTHON)"; \
	if [ -z "$$python" ]; then \
	  for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      python="$$candidate"; break; \
	    fi; \
	  done; \
	fi; \
	if [ -z "$$python" ]; then \
	  echo 'make: no Python 3.11 or newer found; name one with make PYTHON=/path/to/python' >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "make: $$python is not a Python 3.11 or newer" >&2; exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  "$$python" -m venv --clear $(VENV); \
	fi
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,dask]'
	@touch $@

demo: $(STAMP)
	@mkdir -p $(BUILD)
	$(BIN)/python -m simulate --q 0.5 \
	  --save-verdicts $(BUILD)/demo_verdicts.csv --save-gold $(BUILD)/demo_gold.csv
	$(BIN)/python -m difficulty $(BUILD)/demo_verdicts.csv --gold $(BUILD)/demo_gold.csv

test: $(STAMP)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n $(JOBS)

format: $(STAMP)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# Peers pin versions of their own (arena-rank wants one numpy), so they live in an environment of theirs.
bench: $(STAMP)
	test -x .venv-bench/bin/python || $(BIN)/python -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --editable '.[bench]'
	.venv-bench/bin/python scripts/benchmark.py

clean:
	rm -rf $(BUILD) dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis $(STAMP)
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
