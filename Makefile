# Thin on purpose: one line per target. `make run`, `make test` and `make lab` are all a person needs.
PYTHON ?= python3
PROFILE ?= $(or $(COURSE_PROFILE),quick)
BIN := .venv/bin
STAMP := .venv/installed
LATEST := build/latest-venv/bin/python

# `make verify` compares with the revision BASE, or else with the newest that is older than a day.
BASE := $(shell git rev-parse --quiet --verify '$(BASE)^{commit}' || git rev-list -1 --before='1 day ago' HEAD 2>/dev/null)

# Tests that read no text of a lesson or of the documentation: where only text has changed, .ci/run
# leaves them out. `make verify` still executes three lessons.
CODE_TESTS := tests/unit tests/exercises tests/faults tests/combinations/test_combinations.py tests/tools/run tests/tools/race \
	$(addprefix tests/notebooks/,test_cards.py test_execution.py) \
	$(addprefix tests/tools/,test_cli.py test_environment.py test_make_photos.py test_pretrain.py \
	test_race_rivals.py) \
	$(addprefix tests/tools/report/,test_course_cost.py test_keep.py) \
	$(addprefix tests/tools/teach/,test_check.py test_grade.py test_made_folder.py test_nbgrader.py \
	test_sandbox.py)

# Of these, the ones that do read a lesson: its text against stored results, or against the race.
READING_TESTS := $(wildcard tests/unit/*/test_*_lesson.py) tests/tools/race/test_race_rules.py

# Tests that go from lesson to lesson.
LESSON_TESTS := tests/exercises $(addprefix tests/notebooks/,test_cards.py test_execution.py)
empty :=
NAMES = $(subst $(empty) $(empty), or ,$(strip $(LESSONS)))

.PHONY: setup run verify test test-text test-lessons test-cards test-faults test-browser test-latest lab release site doctor lint format execute lock bench clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("The course needs Python 3.11 or newer, this is %d.%d: run make PYTHON=python3.11 (or newer)" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: setup
	@$(BIN)/course run --profile $(PROFILE); status=$$?; $(BIN)/course report --profile $(PROFILE) && exit $$status

# In `quick`: lessons whose stored outputs are stale, those that changed since BASE, three others.
verify: setup
	@$(BIN)/course list --stale || true
	$(BIN)/course run --profile quick --stale $(if $(BASE),--since $(BASE)) --sample 3 $(OPTIONS)

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2

test-text: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 $(CODE_TESTS:%=--ignore=%)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 $(READING_TESTS)

# With LESSONS="17_hard_examples 18_when_to_stop": all tests that depend on these lessons.
test-lessons: test-text
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 $(LESSON_TESTS) -k '$(NAMES)'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 tests/combinations/test_combinations.py \
		$(addprefix tests/tools/teach/,test_check.py test_grade.py test_nbgrader.py)

test-cards: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cards tests/lessons/test_cards.py $(if $(LESSONS),-k '$(NAMES)')

test-faults: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m faults

test-browser: setup
	$(BIN)/python -m pytest tests/browser $(OPTIONS)

test-latest:
	$(PYTHON) -m venv --clear build/latest-venv
	$(LATEST) -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[cluster,dali,search,teach,dev]'
	OMP_NUM_THREADS=1 $(LATEST) -m pytest --numprocesses 2 --newest

release: setup
	$(BIN)/course release

site: setup
	$(BIN)/course site

lab: setup
	$(BIN)/course lab

doctor: setup
	$(BIN)/course doctor

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

execute: setup
	$(BIN)/course run --profile quick --force --store

bench: setup
	$(BIN)/python scripts/fit_overhead.py && $(BIN)/python lesson_code/dali/study.py

lock: setup
	$(BIN)/uv pip compile pyproject.toml --extra cluster --extra dali --extra search --extra teach --extra dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --quiet --custom-compile-command 'make lock' -o requirements.lock

clean:
	rm -rf build runs notebooks/runs .pytest_cache .ruff_cache .mypy_cache
