# Two commands do all the set-up on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test test-full lint types bench docs gallery clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) -e '.[all,dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(PIP) -e '.[all,bench]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/headlights demo

test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

test-full: lint types
	OMP_NUM_THREADS=1 HEADLIGHTS_FULL=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pydoclint --quiet src

types: $(VENV)/.dev
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/python -m pytest docs README.md

gallery: $(VENV)/.installed
	$(BIN)/python docs/gallery.py

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/attention.py --docs docs
	$(BIN)/python benchmarks/recurrent_training.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis headlights-demo
