# Every target first makes .venv with the `layoutopt` command in it. `make help` lists the targets.

SF ?= 0.1
SPARK_VERSIONS ?= 3.5.9 4.0.5 4.1.4 4.2.1
PYTHON ?= python3
DRAW_SECONDS ?= 1500
DRAW ?= $(shell git rev-parse HEAD 2>/dev/null || echo none)
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help install java demo tpch bigdata ablation readme check test test-cluster test-long test-drawn durations test-versions lint ruff mypy contracts quick-tests docs format clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## *' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo "  SF=1 sets the TPC-H scale factor of demo and tpch (default: $(SF))"

install: $(STAMP) java  ## make .venv with the pinned dependencies and the layoutopt command

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "layoutopt needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 install" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "Python's venv module is missing; install it with: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench,dev]'
	@touch $@

java:
	@sh .ci/java

demo: install  ## TPC-H from generator to report, in a minute (SF=1 for the full size)
	$(BIN)/layoutopt bench demo --sf $(SF)

tpch: install  ## every figure of the thesis beside its numbers, on one page; resumes where it stopped
	$(BIN)/python -m jobs.bench tpch --sf $(SF)

bigdata: install  ## figure 4.7: SOP and GSOP under other workloads, on a synthetic table; resumes where it stopped
	$(BIN)/python -m jobs.bench bigdata

ablation: install  ## plans as the thesis has them, then one deviation after the other
	$(BIN)/python -m jobs.bench ablation --sf $(SF)

readme: install  ## write the generated pages and tables: commands, and results from docs/results
	$(BIN)/python -m jobs.bench tpch --readme README.md
	$(BIN)/python -m jobs.bench tpch --readme docs/benchmarks.md --results docs/results
	$(BIN)/python docs/commands.py

check: install  ## lint, and the tests and doctests that need no Spark: before every commit
	@$(MAKE) --no-print-directory --jobs=2 lint quick-tests

quick-tests: install
	LAYOUTOPT_EXAMPLES=0.1 $(BIN)/pytest -q -n 2 --dist loadscope -m "not long and not slow and not spark"

test: install  ## all fast tests and doctests
	LAYOUTOPT_EXAMPLES=0.1 $(BIN)/pytest -q -n 2 --dist loadscope

test-cluster: install  ## jobs, sessions and lost workers on a cluster of Spark, and the DAGs in Airflow; both on this machine
	$(BIN)/pytest -q -m cluster tests/cluster tests/jobs

durations: install  ## write tests/durations.json, by which make test shares its files out; on a quiet machine
	LAYOUTOPT_EXAMPLES=0.1 $(BIN)/pytest -q -n 2 --dist loadscope --record-seconds

test-long: install  ## the tests that take minutes, all examples, new ones each time, and texts checked everywhere
	LAYOUTOPT_CHECK_SKIPPING=1 $(BIN)/pytest -q -m "long or not spark"

test-drawn: install  ## as many of test-long as fit into DRAW_SECONDS; the commit draws which
	LAYOUTOPT_CHECK_SKIPPING=1 $(BIN)/pytest -q -n 2 --dist loadscope -m "long or not spark" \
		--draw $(DRAW) --seconds $(DRAW_SECONDS) --hypothesis-seed $$(echo $(DRAW) | cksum | cut -d " " -f 1)

test-versions: install  ## the suites of sessions and loads on older versions of Spark; takes an hour
	@for version in $(SPARK_VERSIONS); do \
		there=build/versions/$$version; \
		test -x $$there/bin/pytest-there || { \
			$(PYTHON) -m venv $$there && \
			$$there/bin/pip install --quiet --disable-pip-version-check --no-deps pyspark==$$version && \
			ls -d $(CURDIR)/.venv/lib/python*/site-packages > $$(ls -d $$there/lib/python*/site-packages)/base.pth && \
			printf '#!/bin/sh\nexec %s -m pytest "$$@"\n' $(CURDIR)/$$there/bin/python > $$there/bin/pytest-there && \
			chmod +x $$there/bin/pytest-there; } || exit 1; \
		echo "Spark $$version"; \
		LAYOUTOPT_EXAMPLES=0.2 $$there/bin/pytest-there -q -p no:cacheprovider tests/spark/session tests/spark/loading || failed=1; \
	done; exit $${failed:-0}

lint: install ruff mypy contracts  ## ruff, mypy --strict and the import contracts

ruff: install
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .

mypy: install
	$(BIN)/mypy

contracts: install
	$(BIN)/lint-imports

# From nothing: an interrupted build leaves an index that the next one can't load.
docs: install $(DOCS_STAMP)  ## the documentation as a site, build/docs/index.html; warnings are errors
	rm -rf docs/api build/docs build/doctrees
	$(BIN)/sphinx-build -q -W --keep-going -c docs -d build/doctrees . build/docs

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

format: install  ## rewrite the code as ruff formats it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv, build/ and every cache
	rm -rf .venv build dist docs/api *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
