# Everything runs in .venv, which is made when it is missing or older than pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help run test lint types unit clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Offbeat needs Python 3.11 or newer: make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

run: .venv/installed ## compare FedAvg, FedAsync and FedBuff on Fashion-MNIST (under 3 minutes); ARGS="--set …" changes it
	$(BIN)/offbeat compare experiments/quickstart.toml $(ARGS)

test: lint types unit ## lint, type-check and run all tests

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: .venv/installed
	$(BIN)/basedpyright

unit: .venv/installed
	$(BIN)/pytest -n 2 --cov --cov-report=term

clean: ## remove .venv and caches; runs/ stays
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage build *.egg-info src/*.egg-info
