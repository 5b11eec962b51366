# Every target sets itself up: `make demo` and `make test` work in a fresh clone.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed
AUDIT := .venv-audit
AUDIT_STAMP := $(AUDIT)/.installed
AUDIT_VERSION := 2.10.1
OUT ?= out
# If pip would download the GPU build of torch: make setup TORCH_FLAGS="--index-url ...".
TORCH_FLAGS ?=

# Spinning OpenMP threads starve each other on small machines (28 s instead of 1 s was measured).
export OMP_WAIT_POLICY := passive
export MPLBACKEND := Agg

.PHONY: help setup native wheel check-wheel sanitize demo records results test test-all lint format bench bench-peers audit docs docs-check clean

help:
	@echo "make setup     create .venv and install everything, pinned (all other targets do this)"
	@echo "make native    compile the loops of this checkout (needs a C compiler, not .venv)"
	@echo "make demo      features on four surfaces (1 to 3 minutes, longest the first time); results in $(OUT)/"
	@echo "make test      the tests (minutes)          make test-all  with the slow sweeps"
	@echo "make lint      ruff and mypy                make bench     speed and memory, as ratios"
	@echo "make docs      the documentation            make results   results page from docs/records"
	@echo "make records   all experiments at the paper's size, four hours; then the results page. DATA=DIR: with files too"
	@echo "make bench-peers  compare with other libraries, in a separate environment (10 minutes)"
	@echo "make audit     known vulnerabilities of the pinned versions (uses the network)"
	@echo "make wheel     wheel and source archive in dist/   make check-wheel  use the wheel in an empty environment"
	@echo "make sanitize  run the loops under AddressSanitizer and UndefinedBehaviorSanitizer (gcc on Linux)"
	@echo "make clean     remove what make created"

setup: $(STAMP) native

# The same flags as in setup.py. The stable interface of Python serves every version from 3.11 on.
LOOPS := src/manifoldrf/_loops.abi3.so
LOOPS_FLAGS ?= -O3 -ffp-contract=off -std=c11
native: $(LOOPS)

$(LOOPS): src/manifoldrf/_loops.c
	$(CC) $(LOOPS_FLAGS) -shared -fPIC $(if $(filter Darwin,$(shell uname)),-undefined dynamic_lookup) \
	  -I"$$($(firstword $(wildcard $(BIN)/python) $(PYTHON)) -c 'import sysconfig; print(sysconfig.get_path("include"))')" $< -o $@ -lm

# torch comes first, so that the next command does not replace it by another build.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(TORCH_FLAGS) torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dask,gpytorch,mesh,torch,viz,test,lint,docs]"
	@touch $@

demo: setup
	$(BIN)/manifoldrf demo --out $(OUT)

# The MKL inside torch leaves out AVX-512 on processors that are not Intel's, unless a function says that they are:
# on an AMD EPYC a step of training takes .85 ms instead of 1.5.
FASTER := $(VENV)/faster.so
$(FASTER): | $(STAMP)
	echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | $(CC) -x c -shared -fPIC -o $@ -

# Run it on a quiet machine, in a clean checkout: records contain times and the commit. With DATA=DIR three
# experiments read files (docs/data.md) instead of built-in data. Finished parts are in docs/records/parts: after an
# interruption it goes on there, and parts committed so far can be finished elsewhere from the same commit.
# Memory of a step of training is kept instead of returned: a training takes 2.2 ms a step instead of 3.1 with glibc.
# One BLAS thread, because CPU time of waiting threads would be counted too.
records: export OPENBLAS_NUM_THREADS := 1
records: export MALLOC_MMAP_THRESHOLD_ := 1073741824
records: export MALLOC_TRIM_THRESHOLD_ := 2147483647
records: setup $(FASTER)
	LD_PRELOAD=$(abspath $(FASTER)) $(BIN)/python -m reproduction all --size paper $(if $(DATA),--data "$(DATA)") --out docs/records
	mv docs/records/*.png docs/images/
	$(BIN)/python -m reproduction results
	rm -r docs/records/parts

results: setup
	$(BIN)/python -m reproduction results

# With worksteal, tests of a file mostly stay in one process and share their fixtures, such as a Dask cluster.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# Each of the two processes has one core: more threads of libraries would wait for each other.
test test-all: export OPENBLAS_NUM_THREADS := 1

test: setup
	$(PYTEST) -m "not slow" --cov=manifoldrf --cov-report=term:skip-covered

# Each property is tested with 500 examples; MANIFOLDRF_TEST_EXAMPLES=10000 tries more.
test-all: export MANIFOLDRF_TEST_EXAMPLES ?= 500
test-all: setup
	$(PYTEST)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	@code=0; for f in benchmarks/bench_*.py; do PYTHONPATH=. $(BIN)/python $$f || code=1; done; exit $$code

# Other libraries pin older versions of our dependencies, so they have a separate environment.
$(PEERS_STAMP): pyproject.toml constraints.txt benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --constraint constraints.txt $(TORCH_FLAGS) torch
	$(PEERS)/bin/python -m pip install --quiet --requirement benchmarks/peers/requirements.txt
	$(PEERS)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $@

# Writes the table of docs/comparisons.md. PEERS_FLAGS=--quick is a check of a minute.
bench-peers: $(PEERS_STAMP)
	$(PEERS)/bin/python -m benchmarks.peers $(PEERS_FLAGS)

# The tool has its own dependencies, so it has a separate environment. It reads the pinned versions.
$(AUDIT_STAMP):
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet "pip-audit==$(AUDIT_VERSION)"
	@touch $@

audit: $(AUDIT_STAMP)
	$(AUDIT)/bin/pip-audit --strict --no-deps --requirement constraints.txt $(AUDIT_FLAGS)

docs: setup
	$(BIN)/sphinx-build -q -W --keep-going -b html docs $(OUT)/docs
	@echo "documentation: $(OUT)/docs/index.html"

# Builds the pages without running the gallery, and runs the long ones; `make test` runs the others.
docs-check: setup
	$(BIN)/sphinx-build -q -W --keep-going -D plot_gallery=0 -b html docs $(OUT)/docs-check
	$(PYTEST) -m slow tests/test_docs.py

wheel: setup
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

check-wheel: wheel
	$(PYTHON) .ci/check_wheel.py dist/*.whl

# Python itself is not instrumented, so the runtime of the sanitizer comes first. Loops with several versions for
# different processors are resolved before it is ready, hence PLAIN_LOOPS. CPython and libraries leak on purpose.
REACHED := $(patsubst %,tests/geometry/test_%.py,csr layout neighbors farthest_nodes) tests/features/test_rules.py
sanitize: setup
	rm -f $(LOOPS)
	$(MAKE) native LOOPS_FLAGS="-O1 -g -std=c11 -ffp-contract=off -DPLAIN_LOOPS -fsanitize=address,undefined -fno-sanitize-recover=all"
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
	  $(BIN)/python -m pytest -q -m "not slow" tests/test_native.py tests/test_random.py tests/signatures $(REACHED) \
	  tests/reliability/test_damaged_models.py; code=$$?; rm -f $(LOOPS); $(MAKE) native; exit $$code

clean:
	rm -rf $(VENV) $(PEERS) $(AUDIT) $(OUT) docs/gallery docs/sg_execution_times.rst build dist $(LOOPS) .mypy_cache .pytest_cache .ruff_cache
