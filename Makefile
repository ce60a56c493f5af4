# Everything a fresh machine needs: `make quickstart` and `make test` each build the environment first where it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PLUGINS := $(wildcard plugins/*/*/pyproject.toml)
EDITABLE := $(foreach plugin,$(PLUGINS),-e $(dir $(plugin)))
# One thread a process: two workers with two threads each crawl on two cores.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1

.PHONY: help env quickstart test test-full test-nightly lint format bench bench-algorithms bench-rewards bench-unsafe bench-help bench-schedule bench-overlap bench-weights bench-coordinator bench-simulation planning mutation clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

env: $(STAMP)  ## build .venv with rlcore, its plugins and the tools, as pinned in constraints.txt

$(STAMP): pyproject.toml constraints.txt $(PLUGINS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt -e . $(EDITABLE) -e '.[quickstart,dev]'
	@touch $@

quickstart: env  ## a tiny language model learns to sort, on this machine, in about a minute
	$(BIN)/rlcore quickstart $(ARGS)

test: env  ## the fast tests (at most 10 minutes)
	$(BIN)/pytest -m "not full and not nightly" $(ARGS)

test-full: env  ## the tests that CI adds
	$(BIN)/pytest -m "full and not nightly" $(ARGS)

test-nightly: env  ## the long ones
	$(BIN)/pytest -m nightly $(ARGS)

lint: env  ## ruff (rules and format) and mypy --strict on rlcore/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: env  ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: env  ## 60 steps of the quickstart task; the last line is one JSON object
	$(BIN)/python -m benchmarks.step $(ARGS)

bench-algorithms: env  ## every recipe learns the quickstart's task, three seeds each; hours; goes on where it was stopped
	$(BIN)/python -m benchmarks.algorithms $(ARGS)

bench-rewards: env  ## what judging costs: mathematics, jailed programs, items that hang; two workers, five minutes
	$(BIN)/python -m benchmarks.rewards $(ARGS)

bench-unsafe: env  ## hostile programs with and without the sandbox; a few minutes
	$(BIN)/python -m benchmarks.unsafe

bench-overlap: env  ## what overlapping gains, with backends that sleep, on Ray; ten minutes
	$(BIN)/python -m benchmarks.overlap $(ARGS)

bench-weights: env  ## GB/s of every transport of weights beside a copy in memory
	$(BIN)/python -m benchmarks.weights $(ARGS)

bench-coordinator: env  ## groups a second through the schedule's actor, from eight processes
	$(BIN)/python -m benchmarks.coordinator $(ARGS)

bench-simulation: env  ## the simulated runtime against real runs on Ray, on configurations chosen by seed
	$(BIN)/python -m benchmarks.simulation $(ARGS)

planning: env  ## the table and the plot of docs/planning.md, by simulation; ten minutes
	$(BIN)/python -m benchmarks.planning $(ARGS)

bench-help: env  ## CPU seconds of `rlcore --help`
	$(BIN)/python -m benchmarks.help

bench-schedule: env  ## events a second of the coordinator
	$(BIN)/python -m benchmarks.schedule

mutation: env  ## do the tests notice wrong estimators and losses? half an hour; goes on where it was stopped
	@$(BIN)/python -c "import cosmic_ray" 2>/dev/null || $(BIN)/pip install --quiet --constraint constraints.txt -e '.[mutation]'
	$(BIN)/python -m benchmarks.mutation $(ARGS)

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
