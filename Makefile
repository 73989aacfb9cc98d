# make quickstart   train a tokenizer on the sources of Python's standard library
# make test         run the tests
# make test-fast    run those of them that are done in a minute
# make check        lint, format and types, as CI does
# make clean        remove what the targets above made
#
# Each target sets up what it needs in .venv, an environment of the project's own. PYTHON names another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(shell find ext -type f)

# The tests are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-fast check format clean

quickstart: $(VENV)/installed
	$(BIN)/python -m bpeflow --config configs/quickstart.yaml

test: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses logical --dist worksteal

test-fast: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses logical --dist worksteal -m "not slow and not large"

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(find ext -name '*.[ch]' -o -name '*.cpp' -o -name '*.hpp')

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(find ext -name '*.[ch]' -o -name '*.cpp' -o -name '*.hpp')

# Editable installs: changes of the Python sources need no new install, changes of the native ones are built anew.
$(VENV)/installed: $(BUILD_INPUTS) | $(VENV)/made
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: $(BUILD_INPUTS) | $(VENV)/made
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(VENV)/installed $@

$(VENV)/installed-dev: $(BUILD_INPUTS) | $(VENV)/made
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(VENV)/installed $(VENV)/installed-test $@

# Begins from nothing when an earlier attempt has failed half-way (Debian without python3-venv; another Python).
$(VENV)/made:
	rm -rf $(VENV)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "bpeflow needs Python 3.10 or newer: make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	touch $@

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
