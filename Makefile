# `make demo` and `make test` set up everything they need below .venv and tests/node.
# They need a Python of version 3.11 or newer and nothing else; PYTHON= names another one.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := bus/interlock workers/interlock supervisor/interlock
RUNNERS = $(shell n=$$(getconf _NPROCESSORS_ONLN || echo 2); [ $$n -lt 4 ] && echo $$((n + 1)) || echo 4)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check bench wheel clean compiled

demo: compiled
	$(BIN)/interlock demo

# The tests start real processes, which can miss a time limit on a busy machine: a test that fails
# has one more try, and whatever needed it is listed at the end. They wait more than they compute, so
# there is one runner more than processors; the files with the longest tests are the first ones.
test: check compiled tests/node/node_modules/.done
	$(BIN)/pytest -q -n $(RUNNERS) --dist loadfile --no-loadscope-reorder --reruns 1 -r R

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports

bench: compiled
	$(BIN)/interlock bench

# Every process of Interlock starts sooner so, also where Python is told to keep no bytecode.
compiled: $(VENV)/.demo
	@$(BIN)/python -m compileall -q $(SOURCES)

wheel: $(VENV)/.test
	$(PIP) 'build>=1,<2'
	$(BIN)/python -m build --outdir dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Interlock needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "This Python cannot make virtual environments: install its venv package (Debian: python3-venv)"; exit 1; }

$(VENV)/.demo: pyproject.toml $(BIN)/python
	@echo "installing Interlock and the demo's servers below $(VENV); this takes a minute or two ..."
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml $(BIN)/python
	@echo "installing Interlock and what its tests need below $(VENV); this takes a minute or two ..."
	$(PIP) -e '.[demo,test]'
	@touch $@ $(VENV)/.demo

tests/node/node_modules/.done: tests/node/package.json $(VENV)/.test
	@echo "installing the npm servers that the tests run ..."
	cd tests/node && PATH="$(abspath $(BIN)):$$PATH" NODE_USE_SYSTEM_CA=1 npm install --loglevel=error --no-progress
	@touch $@

clean:
	rm -rf $(VENV) tests/node/node_modules dist
