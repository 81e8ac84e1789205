# GNU make. Everything is installed into .venv, nothing outside of it.
#
#   make pilot      install what is missing, then pilot the bundled recipe
#   make ui         MLflow's pages, opened at the newest pilot
#   make check      style, types and the quick tests      (make test: the same)
#   make test-all   the slow tests too
#
# Variables:
#   PYTHON=python3.12         the interpreter that .venv is made with (3.10 or newer; the tested versions
#                             need 3.11: on 3.10 add CONSTRAINTS=)
#   ARGS='optim=sgd'          more words for `make pilot`
#   TORCH='torch ...'         what pip is given for torch before anything else; for a GPU build, say
#                             TORCH='torch --index-url <where your CUDA wheels are>'
#   CONSTRAINTS=              empty: pip may take newer versions than the tested ones
# TORCH and CONSTRAINTS count when .venv is made; `rm -rf .venv` to choose again.
#
# make turns every exit code but 0 into 2. To act on 3 (NO-GO) or 4 (INCONCLUSIVE), call
# `.venv/bin/python -m pilot ...` itself.

PYTHON ?= python3
CONSTRAINTS ?= .ci/constraints.txt
TORCH ?=
ARGS ?=
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --quiet --disable-pip-version-check $(addprefix -c ,$(CONSTRAINTS))
STAMP := $(VENV)/.installed
QUICK := -n 2 --dist loadfile -q -m "not slow"

.PHONY: pilot ui lint check test test-all mutants bench clean

pilot: $(STAMP)
	@$(PY) -m pilot +recipe=llama_ft $(ARGS)

ui: $(STAMP)
	@$(PY) -m pilot.tracking.ui $(ARGS)

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@test -x $(PY) || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing pilot and what it needs (once; torch and MLflow are large)"
	@$(if $(TORCH),$(PIP) $(TORCH))
	@$(PIP) -e '.[dev,lora,transformers,trl]'
	@touch $@

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

check: lint
	$(PY) -m pytest $(QUICK)

test: check

test-all: check
	$(PY) -m pytest -n 2 --dist load -q -m slow --durations=0

# Plants one fault at a time in pilot and counts how many the tests notice.
mutants: $(STAMP)
	$(PY) tests/mutants.py

bench: $(STAMP)
	@$(PY) -m tests.benchmarks.overhead

clean:
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
