# One command each; every target makes .venv from the pins when it is absent or out of date. `make help` lists them.

# The committed numbers are of Python 3.11; any newer one that the pins install on does.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
PROFILE ?= paper
TORCH ?=
CLUSTER ?=

PY := .venv/bin/python
READY := .venv/.ready

# A folder beside the clone that already holds the data sets saves the downloads. A relative path is made
# absolute, because notebooks run in their own folder.
BIF_DATA_MIRROR ?= $(wildcard ../shared/data)
ifneq ($(wildcard $(BIF_DATA_MIRROR)),)
BIF_DATA_MIRROR := $(abspath $(BIF_DATA_MIRROR))
endif
ifneq ($(BIF_DATA_MIRROR),)
export BIF_DATA_MIRROR
endif

export JUPYTER_PREFER_ENV_PATH = 1
ONE_THREAD = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
NO_DOWNLOADS = BIF_OFFLINE=1
JOBS ?= 2

# The data sets that a notebook reads; one that is not listed is given all of them.
NEEDS_00 = none
NEEDS_01 = none
NEEDS_02 = adult credit intrusion
NEEDS_03 = mnist
NEEDS_04 = adult diabetes
NEEDS_05 = adult
NEEDS_08 = none
NEEDS_09 = none
comma := ,
DATA = $(filter-out none,$(if $(ONLY),$(sort $(foreach n,$(subst $(comma), ,$(ONLY)),$(or $(NEEDS_$n),all))),all))

.PHONY: help setup reproduce test check lint unit nbval smoke lab figures notebooks data scoreboard bench attack models site clean FORCE
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  ONLY=01,03     some notebooks      PROFILE=smoke   toy size"
	@echo "  PYTHON=...     the interpreter     TORCH=...       another torch, say a CPU-only wheel"
	@echo "  CLUSTER=...    train on a Dask cluster: tcp://host:8786, or its scheduler file"

# TORCH= given and not what is installed: set up again.
ifneq ($(strip $(TORCH)),)
ifneq ($(strip $(TORCH)),$(strip $(shell cat $(READY) 2>/dev/null)))
$(READY): FORCE
endif
endif
$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python from 3.11 on was found: install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@command -v "$(PYTHON)" >/dev/null || { echo "PYTHON=$(PYTHON) is not a program that runs here: name a Python from 3.11 on." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bifkit needs Python 3.11 or newer, but $(PYTHON) is" \
		"$$($(PYTHON) -c 'import platform; print(platform.python_version())'): name another, as in make PYTHON=/usr/bin/python3.11" >&2; exit 1; }
	@$(SETUP)

# venv and pip. While .venv/.unfinished exists, packages may be half unpacked, which pip takes for installed: an
# interrupted set-up is made anew. A second make waits for the first.
PIP_INSTALL = $(PY) -m pip install --disable-pip-version-check --no-input
SETUP = mkdir -p build; exec 9>build/setup.lock; \
	if command -v flock >/dev/null && ! flock -n 9; then \
		echo "Another make is setting up: waiting for it."; flock 9; \
		if [ -e $(READY) ] && [ "$$(cat $(READY))" = '$(strip $(TORCH))' ]; then exit 0; fi; \
	fi; \
	echo "Setting up .venv: once, a few minutes (log: build/setup.log)"; \
	$(if $(strip $(TORCH)),grep -v '^torch==',cat) requirements.txt >build/pins.txt; \
	if { \
		if [ -e .venv/.unfinished ] || ! $(PY) -m pip --version; then $(PYTHON) -m venv --clear .venv; fi && \
		rm -f $(READY) && touch .venv/.unfinished && \
		$(PIP_INSTALL) --no-compile -r build/pins.txt $(TORCH) && \
		$(PIP_INSTALL) --no-deps --no-build-isolation -e . ; \
	} >build/setup.log 2>&1; then \
		rm .venv/.unfinished; printf '%s' '$(strip $(TORCH))' >$(READY); echo "Ready."; \
	elif grep -q 'No space left on device' build/setup.log; then \
		echo "The disk is full: make room and run make again (log: build/setup.log)." >&2; exit 1; \
	elif grep -qE 'NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|NameResolution' build/setup.log; then \
		echo "No network: pip could not reach a package index; connect, or point pip at a local one" \
			"(PIP_INDEX_URL, PIP_FIND_LINKS), and run make again (log: build/setup.log)." >&2; exit 1; \
	else \
		echo "The versions of requirements.txt do not install on $$($(PYTHON) --version): name another" \
			"(make PYTHON=/usr/bin/python3.11), or mend what build/setup.log says:" \
			"$$({ grep '^ERROR' build/setup.log || cat build/setup.log; } | tail -n 1)" >&2; exit 1; \
	fi

setup: $(READY) ## make .venv from the pins (every other target does so by itself)

reproduce: $(READY) ## train everything anew, execute every notebook, print the scoreboard
	@$(if $(DATA),$(PY) -m data_prep fetch $(DATA) || echo "Some data sets are absent: what needs them is reported as not run." >&2)
	@$(ONE_THREAD) $(if $(CLUSTER),BIF_CLUSTER='$(CLUSTER)') $(PY) -m experiments.runner.notebooks --profile $(PROFILE) $(if $(ONLY),--only $(ONLY))

smoke: $(READY) ## the same path at toy size on made-up data, minutes, without downloads; output in build/smoke
	@$(NO_DOWNLOADS) $(ONE_THREAD) $(PY) -m experiments.runner.notebooks --profile smoke $(if $(ONLY),--only $(ONLY))

test: $(READY) ## lint, import contracts, types, unit tests, examples in docstrings, then every notebook against its stored output
	@$(PY) -m data_prep fetch all --quiet || echo "Some data sets are absent: what needs them is skipped." >&2
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory nbval

check: lint ## lint, import contracts, types and the fast unit tests: two minutes, while working
	$(ONE_THREAD) $(PY) -m pytest -n $(JOBS) -m "not slow"

lint: $(READY)
	$(PY) -m ruff check .
	.venv/bin/lint-imports --no-cache
	$(PY) -m mypy

unit: lint
	$(ONE_THREAD) $(PY) -m pytest -n $(JOBS)

nbval: $(READY)
	$(NO_DOWNLOADS) $(ONE_THREAD) $(PY) -m pytest -q -n $(JOBS) --dist loadfile -p no:randomly --nbval-lax --nbval-current-env notebooks

lab: $(READY) ## JupyterLab, open on notebooks/00_start_here.ipynb
	@$(PY) -m jupyter lab notebooks/00_start_here.ipynb

figures: $(READY) ## redraw tables and figures from results/ without training anything
	@$(NO_DOWNLOADS) $(ONE_THREAD) $(PY) -m experiments.runner.notebooks --replay $(if $(ONLY),--only $(ONLY))

notebooks: $(READY) ## execute the notebooks in place, replaying results/, for committing
	@$(NO_DOWNLOADS) $(ONE_THREAD) $(PY) -m experiments.runner.notebooks --in-place $(if $(ONLY),--only $(ONLY))

data: $(READY) ## fetch and verify the data sets
	@$(PY) -m data_prep fetch all

scoreboard: $(READY) ## the paper's numbers beside ours
	@$(PY) -m experiments.runner.scoreboard

SITE_ENV := build/site-env
$(SITE_ENV)/.ready: requirements-site.txt $(READY)
	@echo "Bringing what makes the site: once (log: build/site-env.log)"
	@rm -rf $(SITE_ENV); mkdir -p build; $(PIP_INSTALL) --no-compile --no-deps --target $(SITE_ENV) -r requirements-site.txt \
		>build/site-env.log 2>&1 || { tail -n 1 build/site-env.log >&2; exit 1; }
	@touch $@

site: $(SITE_ENV)/.ready ## pages, notebooks and the reference as a site in build/site/html, looked at in a browser
	@PYTHONPATH=$(SITE_ENV) $(ONE_THREAD) $(PY) -m experiments.runner.site
	@BIF_SITE=$(CURDIR)/build/site/html $(ONE_THREAD) $(PY) -m pytest -q -n 0 tests/runner/test_site.py

models: $(READY) ## g, explainers and posteriors of seed 0 of the studies, to take away, in build/models
	@$(PY) -m data_prep fetch all --quiet || echo "Some data sets are absent: what needs them is left out." >&2
	@$(ONE_THREAD) $(PY) -m experiments.take_away $(if $(ONLY),--only $(ONLY))

bench: $(READY) ## speed and scale beside the published setting and other explainers; keep the machine quiet
	@$(ONE_THREAD) $(PY) -m experiments.bench

attack: $(READY) ## the slow hostile suite: 4,000 damaged and forged files, broken fetches, kills, threads
	@$(ONE_THREAD) $(PY) -m tests.attack --mutations 4000

clean: ## remove scratch files (build/, caches); .venv, data/ and results/ stay
	@rm -rf build .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis *.egg-info
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	@find . -name .ipynb_checkpoints -not -path './.venv/*' -prune -exec rm -rf {} +
