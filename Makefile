# Bare `make` explains itself. Everything happens in .venv, built once from constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help run test lab notebooks gpu bench lint clean

help:            ## print these lines
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | awk -F':[^#]*## *' '{printf "  make %-10s %s\n", $$1, $$NF}'

run: $(BIN)/ready            ## execute every notebook on this machine; read the results in build/html
	@$(BIN)/python -m ssmlab.lab.run

test: lint            ## run all tests, and compare every notebook cell with what is committed
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests notebooks --nbval --nbval-current-env

lab: $(BIN)/ready            ## open JupyterLab in notebooks/
	@$(BIN)/jupyter lab --notebook-dir=notebooks

notebooks: $(BIN)/ready            ## rebuild the committed .ipynb from notebooks/source (NB="01 04" for some)
	@$(BIN)/python -m ssmlab.lab.build $(NB)

gpu: $(BIN)/ready            ## on a GPU machine: GPU tests, notebooks, NVIDIA's tools beside ours, speed; logs in build/gpu
	@PYTHON=$(BIN)/python bash tests/gpu/run_all.sh build/gpu

bench: $(BIN)/ready            ## time ours, the installed peers and a large copy; write notebooks/results (OPS="scan" for some)
	@$(BIN)/python -m ssmlab.bench $(OPS) --output notebooks/results

lint: $(BIN)/ready            ## check style
	@$(BIN)/ruff check ssmlab tests notebooks

clean:            ## remove what was built, the folders .venv and build
	rm -rf .venv build

$(BIN)/ready: constraints.txt pyproject.toml
	@echo "building .venv (once; a few minutes) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "ssmlab needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "python3 has no venv: install it (Debian and Ubuntu: the package python3-venv)"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
