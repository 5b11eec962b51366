# Every command sets itself up: `make demo` and `make test` work on a fresh clone.
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
SOAK_MINUTES ?= 30
# Where plain pip would fetch the GPU build of torch: make setup TORCH_FLAGS="--index-url ..." or an installed torch.
TORCH_FLAGS ?=

# Spinning OpenMP threads starve each other on small machines (28 s instead of 1 s was measured).
export OMP_WAIT_POLICY := passive
export MPLBACKEND := Agg

.PHONY: help setup demo records results report test test-all fuzz lint format bench bench-peers soak audit docs docs-check clean

help:
	@echo "make setup     create .venv and install everything, pinned (done by all the others)"
	@echo "make demo      the paper's first table at a small size; pictures, report and explorer in $(OUT)/"
	@echo "make test      the tests (minutes)          make test-all  with the slow sweeps"
	@echo "make fuzz      123,000 damaged files for all readers (some minutes)"
	@echo "make lint      ruff and mypy                make bench     speed and memory, as ratios"
	@echo "make docs      the documentation            make results   the results page, from docs/records"
	@echo "make records   every experiment at the paper's size, hours; then the results page"
	@echo "make report    all pictures and one HTML page from docs/records"
	@echo "make bench-peers  beside other libraries, in an environment of its own: docs/peers.md (20 minutes)"
	@echo "make soak      mixed work for SOAK_MINUTES (30): memory, files, threads, bits; docs/results/soak.json"
	@echo "make audit     known vulnerabilities of the pinned versions (asks a service on the network)"
	@echo "make clean     remove what make created"

setup: $(STAMP)

# torch first, pinned and apart: what follows then finds it satisfied and never replaces it by another build.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(TORCH_FLAGS) torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[ann,dask,mesh,viz,test,lint,docs]"
	@touch $@

demo: setup
	$(BIN)/manifoldrf demo --out $(OUT)

# From a commit without changes, on a quiet machine: records name the commit and hold times.
records: setup
	$(BIN)/manifoldrf reproduce all --size paper --out $(OUT)/paper
	mkdir -p docs/records docs/images
	cp $(OUT)/paper/*.json $(OUT)/paper/*.npz docs/records/
	cp $(OUT)/paper/*.png docs/images/
	$(BIN)/manifoldrf results

results: setup
	$(BIN)/manifoldrf results

# All pictures and one HTML page again, from the committed records; nothing is run.
report: setup
	$(BIN)/manifoldrf report docs/records -o $(OUT)/report.html --figures docs/images

test: setup
	$(BIN)/python -m pytest -n 2 -m "not slow"

# Properties are tried on 10,000 examples each, unless the environment says otherwise.
test-all: export MANIFOLDRF_TEST_EXAMPLES ?= 10000
test-all: setup
	$(BIN)/python -m pytest -n 2

# All readers of files, 123,000 damaged files; offending ones are kept in $(OUT)/fuzz.
fuzz: setup
	PYTHONPATH=tests $(BIN)/python -m reliability.fuzz_files --keep $(OUT)/fuzz $(FUZZ_FLAGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	@set -e; for f in benchmarks/bench_*.py; do $(BIN)/python $$f; done

# Other libraries pin older versions of what this one uses, so they have an environment of their own.
$(PEERS_STAMP): pyproject.toml constraints.txt benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --constraint constraints.txt $(TORCH_FLAGS) torch
	$(PEERS)/bin/python -m pip install --quiet --requirement benchmarks/peers/requirements.txt
	$(PEERS)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $@

# On a quiet machine: `PEERS_FLAGS="--only meshes"` repeats one part, `--size smoke` shows that all runs.
bench-peers: $(PEERS_STAMP)
	$(PEERS)/bin/python -m benchmarks.peers $(PEERS_FLAGS)

# Half an hour of mixed work by one process; other work beside it does no harm.
soak: setup
	$(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES)

# The tool brings dependencies of its own, so it has an environment of its own; it reads the pins and installs none.
$(AUDIT_STAMP):
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet "pip-audit==$(AUDIT_VERSION)"
	@touch $@

audit: $(AUDIT_STAMP)
	$(AUDIT)/bin/python benchmarks/audit.py $(AUDIT_FLAGS)

docs: setup
	$(BIN)/sphinx-build -q -W --keep-going -b html docs $(OUT)/docs
	@echo "documentation: $(OUT)/docs/index.html"

# The pages and their links alone: the examples of the gallery do not run.
docs-check: setup
	$(BIN)/sphinx-build -q -W --keep-going -D plot_gallery=0 -b html docs $(OUT)/docs-check

clean:
	rm -rf $(VENV) $(PEERS) $(AUDIT) $(OUT) docs/gallery docs/sg_execution_times.rst .mypy_cache .pytest_cache .ruff_cache
