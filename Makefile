# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
#
# Every target does its own set-up, from an empty home folder. Needed are make, a Python from 3.11 to 3.13, and a C
# compiler for proton, which is built from source (with OpenSSL's headers and pkg-config, where a drop-in is to speak
# TLS). Spark needs Java 17. The real brokers of `make test` also need that and mvn (ActiveMQ, Artemis), and Debian as
# root or with `sudo -n` (RabbitMQ). `make` alone lists the targets.
#
# The lock file is requirements.lock: every version and hash that the three Pythons need, on any platform, as
# `uv pip compile --universal` writes it. uv.lock is not used because it also names the address of the package
# index and of every file on it, so that it fits only those who install from there; this one says what to install,
# and pip's or uv's own settings say from where.

BROKER ?= memory
VENV ?= .venv
PYTHON ?= $(shell .ci/find-python)
UV_VERSION := 0.13.8
PYTEST := $(VENV)/bin/python -m pytest
# A,B+C: A with B after it, beside C. Tests on brokers wait for half of their time, which the unit tests use. Those on Spark
# begin when the unit tests have ended, beside the last ones on brokers: all three at once took each other's processors.
STAGES := $(or $(PYTHON),python3) .ci/stages
READY := $(VENV)/.ready
FRAMEWORKS := .bench/venv
LETTER_CLIENTS := .frameworks/venv
# Several workers, a file at a time. Tests on brokers mostly wait; each worker has brokers of its own.
SPREAD = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
WORKERS ?= 4
SECONDS ?= 60

# uv knows none of pip's settings: hand on those that decide whether an index can be reached. Certificates are
# this machine's own, since a company's proxy often adds one.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifdef PIP_EXTRA_INDEX_URL
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
endif
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
export UV_SYSTEM_CERTS := 1
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport VIRTUAL_ENV PYTHONPATH
# Container images often set this. Each of some thousand processes would then compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-fast test-pythons lint types imports docs collected java-archive unit unit-fast brokers broker-tests spark-tests demo-spark bench bench-small bench-diff bench-policies bench-spark fuzz fuzz-messages infrastructure infrastructure-tests long-tests conversions prove prove-simulated prove-kills gallery mutants lock wheel clean

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

setup: $(READY) ## the virtual environment in .venv, as locked; nothing to do the second time

# A real broker is REDELIVER_URL's, else docker-compose.yml's where an engine answers, else the local installation.
demo: $(READY) ## the order service, its dead letters; BROKER=memory, activemq, artemis or rabbitmq
	$(VENV)/bin/python examples/order_service/demo.py --broker $(BROKER)

# What CI does is this: .ci/run sets REDELIVER_CI=1, with which a missing broker is a failure, and makes `test`.
# It runs on one Python, the oldest; the others are left to `make test-pythons`.
test: ## everything: lint, types, import layers, the documentation's links, unit tests, tests on Spark, tests on real brokers, the small bench
	@$(STAGES) setup lint+types+imports+docs+collected+java-archive brokers unit,spark-tests+broker-tests bench-small

# In this order: what fails soonest comes first.
test-all: ## `test`, and everything that is too slow for it; hours
	@$(STAGES) test test-pythons long-tests infrastructure-tests conversions fuzz prove

test-fast: ## lint, types, import layers, the site, and the quick ones of the unit tests: for while you work
	@$(STAGES) setup lint+types+imports+docs+collected unit-fast

test-pythons: ## the unit tests on each Python from 3.11 to 3.13 that is found here
	@$(STAGES) $(foreach version,3.11 3.12 3.13,$(if $(shell .ci/find-python $(version)),unit-$(version)))

unit-3.%:
	@$(MAKE) --no-print-directory unit VENV=.venv-3$* PYTHON=$$(.ci/find-python 3.$*)

lint: $(READY) ## ruff: findings, and the format
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(READY) ## mypy, strict
	$(VENV)/bin/mypy

imports: $(READY) ## import-linter: who may import whom
	$(VENV)/bin/lint-imports

# Sphinx warns about a page only when it reads or writes the page, so each time all of them are made anew.
docs: $(READY) ## the documentation's site, in build/docs; a link inside it that leads nowhere is an error
	@rm -rf build/docs build/doctrees
	$(VENV)/bin/python -m sphinx -b html -q -n -W --keep-going -d build/doctrees docs build/docs
	@echo "the site begins with build/docs/index.html"

# Each worker imports all tests. What they compile is kept, so that it is done once, and not by eight workers at a time.
collected: $(READY) ## every test can be imported; it also compiles them
	$(PYTEST) --collect-only -qq > /dev/null || { $(PYTEST) --collect-only -q | tail -n 60; false; }

java-archive: $(READY) ## the classes that Spark loads, in a file from which Java starts in half the time; tests alone use it
	$(VENV)/bin/python -m tests.java_archives

unit: $(READY) ## the tests that need no real broker and no Spark
	$(PYTEST) $(SPREAD) -m "not broker and not spark and not long"

unit-fast: $(READY) ## the unit tests without those of whole files that take many seconds
	$(PYTEST) $(SPREAD) -m "not broker and not spark and not long and not slow"

SPARK_TESTS := tests/pipeline tests/test_start.py
spark-tests: WORKERS = 3
spark-tests: $(READY) ## the tests of the pipeline on Spark, also between brokers and Spark; they need Java 17 or 21
	$(PYTEST) $(SPREAD) -m "spark and not long" $(SPARK_TESTS)

brokers: $(READY) ## fetch the real brokers, once, into a cache folder outside this one
	$(VENV)/bin/python -m tests.brokers fetch || test "$$REDELIVER_CI" != 1

broker-tests: $(READY) ## the tests on real brokers
	$(PYTEST) $(SPREAD) -m "broker and not spark and not infrastructure and not long"

long-tests: $(READY) $(LETTER_CLIENTS)/.ready ## the tests that are too slow for `make test`, nearly all on real brokers
	$(PYTEST) $(SPREAD) -m long

infrastructure-tests: $(READY) ## every fault on every cluster and pair of brokers; an hour and more
	$(PYTEST) -m infrastructure

# INFRASTRUCTURE is for more: make infrastructure INFRASTRUCTURE="--cluster rabbitmq43 --fault kill"
infrastructure: $(READY) ## the same as a table: seconds until consuming again, lost, duplicates, dead letters twice
	$(VENV)/bin/python -m tests.infrastructure --markdown .infrastructure.md $(INFRASTRUCTURE)

# BENCH is for more: make bench BENCH="--only failing life --rounds 3"
bench: $(READY) $(FRAMEWORKS)/.ready ## App and drop-in against loops by hand and other frameworks, on real brokers; half an hour
	$(VENV)/bin/python -m tests.bench --json .bench/bench.json --markdown .bench/bench.md $(BENCH)
	@cat .bench/bench.md

bench-small: $(READY) ## a small form of it, which fails where a ratio is far below its goal in three tries
	$(VENV)/bin/python -m tests.bench --small

bench-diff: $(READY) ## two runs of it compared: make bench-diff A=before.json B=after.json
	@$(VENV)/bin/python -m tests.bench.diff $(A) $(B)

# What we are measured against is no dependency of ours, and gets an environment of its own.
# The same holds for the frameworks whose dead letters are made in tests.
.PHONY: $(FRAMEWORKS) $(LETTER_CLIENTS)
$(FRAMEWORKS): $(FRAMEWORKS)/.ready
$(LETTER_CLIENTS): $(LETTER_CLIENTS)/.ready

$(FRAMEWORKS)/.ready: tests/bench/frameworks.txt
$(LETTER_CLIENTS)/.ready: tests/dead_letters/foreign/frameworks.txt

$(FRAMEWORKS)/.ready $(LETTER_CLIENTS)/.ready: | $(READY)
	@echo "setup: $(@D), the frameworks of $<"
	@mkdir -p $(@D)
	@$(PYTHON) -m venv --clear $(@D)
	@$(VENV)/bin/uv pip install --quiet --python $(@D) -r $< \
	 || { echo "setup: uv could not do it (see above); pip does"; $(@D)/bin/python -m pip install --quiet -r $<; }
	@touch $@

demo-spark: $(READY) ## a simulated quarter of an order service: its journal through Spark to a report for people
	$(VENV)/bin/python examples/quarter/main.py

bench-spark: $(READY) ## the pipeline beside DuckDB, on 1, 5 and 20 million records, and in a bucket; limbo as a table; plans; drains
	$(VENV)/bin/python -m tests.bench.spark
	$(VENV)/bin/python -m tests.bench.spark.bucket
	$(VENV)/bin/python -m tests.bench.spark.limbo
	$(VENV)/bin/python -m tests.bench.plans
	$(VENV)/bin/python -m tests.bench.drains

bench-policies: $(READY) ## what policies cost: to decide, to read and write a map of 1000 entries, to find one in it
	$(VENV)/bin/python -m tests.bench.policies

# atheris comes into a folder of its own: it exists for Linux only, and no test needs it.
fuzz: $(READY) ## each reader of a policy language under atheris, for SECONDS (60); what it finds stays in .fuzz
	@test -d .fuzz/atheris || $(VENV)/bin/python -m pip install --quiet --target .fuzz/atheris "atheris>=3,<4"
	PYTHONPATH=.fuzz/atheris $(VENV)/bin/python -m tests.fuzz --seconds $(SECONDS)

# BROKER is one of activemq63, activemq518, artemis244, rabbitmq43, rabbitmq43-amqp10, rabbitmq310; else it is all of them.
fuzz-messages: $(READY) ## hostile messages on real brokers, for SECONDS (60) on each; FUZZ="--seed N" makes a round again
	$(VENV)/bin/python -m tests.hostile --seconds $(SECONDS) $(if $(filter-out memory,$(BROKER)),--broker $(BROKER)) $(FUZZ)

CONVERSIONS ?= 20000
conversions: $(READY) ## random policies from each language into each: whatever differs is listed as lost
	REDELIVER_CONVERSIONS=$(CONVERSIONS) $(PYTEST) -m "not broker" -k whatever_differs tests/policy/test_conversion.py

# HISTORIES, LIMBOS, STATES, DRAWS and KILLS make it smaller or larger. What is random here comes from seeds that are printed.
HISTORIES ?= 1000000
LIMBOS ?= 20000
STATES ?= 2000000
KILLS ?= 1000
DRAWS ?= 200
prove: prove-simulated prove-kills ## that nothing is lost: a million simulated histories, a million states walked, every mutant caught, a thousand kills

prove-simulated: $(READY) ## the first part of it, without brokers
	$(VENV)/bin/python -m tests.simulation --histories $(HISTORIES)
	$(VENV)/bin/python -m tests.simulation --histories $(LIMBOS) --limbo
	$(VENV)/bin/python -m tests.simulation.exhaustive --states $(STATES)
	$(VENV)/bin/python -m tests.simulation.mutants
	$(VENV)/bin/python -m tests.pipeline.backtest.gallery --draws $(DRAWS)

gallery: $(READY) ## worlds whose law is known: is the back-test's advice ever surer than its data?
	$(VENV)/bin/python -m tests.pipeline.backtest.gallery --draws $(DRAWS)

prove-kills: $(READY) ## the second, on real brokers; mostly it waits: make -j2 prove has it beside the first
	$(VENV)/bin/python -m tests.faults.prove --kills $(KILLS)

mutants: $(READY) ## the real code with one rule broken at a time; the simulation has to notice each
	$(VENV)/bin/python -m tests.simulation.mutants

lock: $(READY) ## write requirements.lock anew, with as few changes as can be; UPGRADE=1: the newest of all
	@echo "locking the dependencies of pyproject.toml"
	@cp requirements.lock .lock.new
	@$(VENV)/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-package redeliver-mw $(if $(UPGRADE),--upgrade) --quiet -o .lock.new
	@{ echo "# Written by 'make lock': what redeliver-mw[dev] needs on Python 3.11 to 3.13, on any platform."; \
	   echo "# Versions and hashes only; where they come from is up to the installer."; cat .lock.new; } > requirements.lock
	@rm .lock.new

wheel: $(READY) ## the wheel, in dist/
	$(VENV)/bin/python -m build --wheel --no-isolation

clean: ## remove what was made here: environments, caches, dist/
	rm -rf .venv .venv-3* $(FRAMEWORKS) .frameworks .fuzz .infrastructure.md .prove dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find redeliver_mw adapters tests examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# pip installs uv, uv the rest, in seconds. Where uv cannot reach the index and pip can, pip does it all, slower.
$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python from 3.11 to 3.13 found; install one, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "setup: $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv --clear $(VENV) \
	 || { rm -rf $(VENV); echo "make: that Python makes no virtual environments; on Debian: apt install python3-venv" >&2; exit 1; }
	@$(VENV)/bin/python -m pip install --quiet uv==$(UV_VERSION) \
	 && $(VENV)/bin/uv pip install --quiet --python $(VENV) --require-hashes -r requirements.lock \
	 || { echo "setup: uv could not do it (see above); pip does"; \
	      $(VENV)/bin/python -m pip install --quiet --require-hashes -r requirements.lock; }
	@$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@
