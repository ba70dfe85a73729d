# One line per target. `make run`, `make test` and `make lab` are all that a person needs.
PYTHON ?= python3
PROFILE ?= $(or $(COURSE_PROFILE),quick)
BIN := .venv/bin
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2
LATEST := build/latest-venv/bin/python

.PHONY: setup run test test-all test-cards test-faults test-browser test-latest lab lint format site release lock clean

setup: .venv/installed
.venv/installed: requirements.lock pyproject.toml
	$(PYTHON) set_up.py
run: setup
	@$(BIN)/course run --profile $(PROFILE) --jobs 2; status=$$?; $(BIN)/course report --profile $(PROFILE) && exit $$status
test: setup
	$(PYTEST) $(OPTIONS)
test-cards: setup
	$(PYTEST) -m cards tests/lessons $(OPTIONS)
test-faults: setup
	$(PYTEST) -m faults tests/faults tests/tools $(OPTIONS)
test-browser: setup
	$(PYTEST) tests/browser $(OPTIONS)
test-all: test-cards test-faults test-browser
	$(PYTEST) --nightly $(OPTIONS)
test-latest:
	$(PYTHON) -m venv --clear build/latest-venv
	$(LATEST) -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[cluster,dali,search,teach,dev]'
	OMP_NUM_THREADS=1 $(LATEST) -m pytest --numprocesses 2 --newest
lab site release: setup
	$(BIN)/course $@
lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
format: setup
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .
lock: setup
	$(BIN)/uv pip compile pyproject.toml --extra cluster --extra dali --extra search --extra teach --extra dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --quiet --custom-compile-command 'make lock' -o requirements.lock
clean:
	rm -rf build runs notebooks/runs .pytest_cache .ruff_cache .mypy_cache
