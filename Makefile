# Everything a fresh machine needs: `make quickstart` and `make test` each build the environment first where it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
QUICK_STAMP := $(VENV)/.quickstart
PLUGINS := $(wildcard plugins/*/*/pyproject.toml)
# What python -c says of a Python that is too old.
CHECK := import sys; sys.version_info < (3, 11) and sys.exit("$(PYTHON) is Python %d.%d, and rlcore needs Python 3.11 or newer; type PYTHON=/path/to/it" % sys.version_info[:2])
EDITABLE := $(foreach plugin,$(PLUGINS),-e $(dir $(plugin)))
# What `make quickstart` installs: the plugins of the extra `quickstart`. tests/repo/test_make.py compares the two.
QUICK := $(addprefix -e plugins/,algos/grpo backends/torch backends/transformers data/datasets environments/gateway environments/program rewards/adapters rewards/extraction rewards/math runtimes/processes runtimes/workers tools/quickstart tools/tools)
# One build backend for all distributions, which the environment holds: an isolated build of each takes four seconds.
INSTALL = $(BIN)/pip install --disable-pip-version-check --constraint constraints.txt --no-build-isolation
# One thread a process: two workers with two threads each crawl on two cores.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1
# Where it is set, each of the thousands of processes that a suite starts would compile rlcore anew.
export PYTHONDONTWRITEBYTECODE :=
# Processes that run tests side by side, one more than CI has cores, since tests wait; those marked `serial` come after them, alone. 0: all in one process, as --pdb needs.
WORKERS ?= 3
# Which tests of an engine's environment: MARKS=nightly, or MARKS="nightly or not nightly" for all.
MARKS ?= not nightly

.PHONY: help env quickstart wheels release-check test test-full test-nightly groups ci-groups nightly test-vllm test-vllm-engine test-vllm-runs test-sglang test-sglang-engine test-sglang-runs test-trl lint format docs pictures bench bench-algorithms bench-curriculum bench-sources bench-parity bench-engines bench-layouts bench-rewards bench-data bench-verdicts bench-unsafe bench-help bench-report bench-logprobs bench-schedule bench-overlap bench-tails bench-processes bench-packing bench-checkpoint bench-weights bench-weights-paper bench-scale-paper bench-updates bench-evaluation bench-peers bench-first-step bench-flames bench-generation bench-coordinator bench-gateway bench-simulation crash-matrix chaos architectures planning mutation gpu gpu-engines gpu-wheels bench-files test-slurm test-colossalai test-reference test-environments clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

env: $(STAMP)  ## build .venv with rlcore, its plugins and the tools, as pinned in constraints.txt

$(STAMP): WHAT := rlcore, all its plugins and the tools for working on it (2.5 GB)
$(STAMP): WORDS := $(EDITABLE) -e '.[quickstart,dev]'
$(QUICK_STAMP): WHAT := rlcore and what the quickstart needs (1.2 GB; make env brings the rest)
$(QUICK_STAMP): WORDS := $(QUICK) -e '.[quickstart]'
$(STAMP) $(QUICK_STAMP): pyproject.toml constraints.txt $(PLUGINS)
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { $(PYTHON) -c '$(CHECK)' && $(PYTHON) -m venv $(if $(wildcard $(VENV)/pyvenv.cfg),--clear) $(VENV); }
	@echo "installing $(WHAT) into $(VENV)" >&2
	@$(INSTALL) --quiet setuptools >&2
	@$(INSTALL) -e . $(WORDS) >&2
	@touch $(QUICK_STAMP) $@

quickstart: $(QUICK_STAMP)  ## a tiny language model learns to sort, on this machine, in about a minute
	$(BIN)/rlcore quickstart $(ARGS)

wheels: env  ## every distribution as a source and a wheel in dist/; then `pip install --constraint dist/constraints.txt dist/*.whl 'rlcore[all]'`
	$(BIN)/python -m tools.release build

release-check: env  ## the checklist of a release, VERSION=1.2.3; ARGS=--dry-run: what takes seconds; without: half an hour
	$(BIN)/python -m tools.release check $(VERSION) $(ARGS)

test: env  ## the fast tests, in three processes (about 12 minutes)
	$(BIN)/python -m tests.suite --workers $(WORKERS) -m "not full and not nightly" $(ARGS)

test-full: env  ## the tests that CI adds, in three processes (at most 17 minutes)
	$(BIN)/python -m tests.suite --workers $(WORKERS) -m "full and not nightly" $(ARGS)

test-nightly: env  ## the long ones, by hand: see CONTRIBUTING.md
	$(BIN)/python -m tests.suite --workers $(WORKERS) -m nightly $(ARGS)

groups: env  ## which groups of tests `.ci/run` and `make nightly` would run, and why; ARGS=--json
	$(BIN)/python -m tests.groups list $(ARGS)

ci-groups: env  ## the part of .ci/run behind `make test`: full tests and engines, three groups side by side; ALL=1: those known to pass, too
	$(BIN)/python -m tests.groups ci

nightly: env  ## the nightly groups that have not passed with today's code, most valuable first; resumes where it was stopped; ARGS=--stale: list them
	$(BIN)/python -m tests.groups nightly $(ARGS)

test-vllm: test-vllm-engine test-vllm-runs  ## the tests that need the environment of vLLM (9 minutes; the first time 2.6 GB are installed)

test-vllm-engine: env  ## of these, the ones that make the engine, in its environment
	$(BIN)/python -m tests.in_environment "$$($(BIN)/rlcore env build vllm-cpu)" plugins/backends/vllm/tests/engine -m "$(MARKS)" $(ARGS)

test-vllm-runs: env  ## of these, whole runs whose producers are in that environment
	RLCORE_TEST_VLLM="$$($(BIN)/rlcore env build vllm-cpu)" $(BIN)/python -m tests.suite --workers 0 tests/integration/ray/test_ray_vllm.py tests/integration/test_engine_faults.py tests/integration/test_endpoint_runs.py tests/integration/test_eval_engines.py plugins/backends/serving/tests/server -m "$(MARKS)" $(ARGS)

test-sglang: test-sglang-engine test-sglang-runs  ## the tests that make SGLang's engine, or run in its environment (6 minutes; the first time 3 GB are installed)

test-sglang-engine: env  ## of these, the ones that make the engine, in its environment
	$(BIN)/python -m tests.in_environment "$$($(BIN)/rlcore env build sglang-cpu)" plugins/backends/sglang/tests/engine -m "$(MARKS)" $(ARGS)

test-sglang-runs: env  ## of these, whole runs whose producers are in that environment
	RLCORE_TEST_SGLANG="$$($(BIN)/rlcore env build sglang-cpu)" $(BIN)/python -m tests.suite --workers 0 tests/integration/test_sglang_runs.py tests/integration/test_engine_faults.py plugins/backends/serving/tests/server -m "$(MARKS)" $(ARGS)

test-environments: env  ## the tests that need the environments of verifiers, OpenEnv, Harbor and textarena (10 minutes; the first time 1.6 GB are installed)
	RLCORE_TEST_VERIFIERS="$$($(BIN)/rlcore env build verifiers)" RLCORE_TEST_OPENENV="$$($(BIN)/rlcore env build openenv)" RLCORE_TEST_HARBOR="$$($(BIN)/rlcore env build harbor)" RLCORE_TEST_TEXTARENA="$$($(BIN)/rlcore env build textarena)" $(BIN)/python -m tests.suite --workers 0 plugins/environments/verifiers/tests/environment plugins/environments/openenv/tests/test_openenv_episodes.py plugins/environments/harbor/tests/environment plugins/environments/textarena/tests/engine -m "$(MARKS)" $(ARGS)

test-colossalai: env  ## the tests that train by ColossalAI, or in its environment (6 minutes; the first time 1.6 GB are installed)
	$(BIN)/python -m tests.in_environment "$$($(BIN)/rlcore env build colossalai-cpu)" plugins/backends/colossalai/tests/trainer -m "$(MARKS)" $(ARGS)
	RLCORE_TEST_COLOSSALAI="$$($(BIN)/rlcore env build colossalai-cpu)" $(BIN)/python -m tests.suite --workers 0 plugins/backends/colossalai/tests tests/integration/test_training_environment.py tests/integration/test_colossalai_runs.py -m "$(MARKS)" $(ARGS)

test-reference: env  ## the published command lines of ColossalChat, scaled down, with vLLM and ColossalAI in their environments (a minute of CPU time)
	RLCORE_TEST_VLLM="$$($(BIN)/rlcore env build vllm-cpu)" RLCORE_TEST_COLOSSALAI="$$($(BIN)/rlcore env build colossalai-cpu)" $(BIN)/python -m tests.suite --workers 0 tests/integration/ray/test_ray_reference.py -m "$(MARKS)" $(ARGS)

test-trl: env .peers/.rlcore  ## TRL's trainer drives rewards of rlcore, in an environment of its own (1 minute; the first time 0.5 GB are installed)
	RLCORE_TEST_TRL="$(CURDIR)/.peers/bin/python" $(BIN)/python -m pytest plugins/rewards/adapters/tests/trainer $(ARGS)

.peers/.rlcore: .peers/.installed
	.peers/bin/pip install --quiet --constraint constraints.txt -e . -e plugins/rewards/extraction -e plugins/rewards/math -e plugins/rewards/adapters
	@touch $@

test-slurm: env  ## `rlcore launch slurm` on a real Slurm of two nodes on this machine, which must be installed (apt-get install slurm-wlm); 25 minutes
	@for name in sbatch slurmctld slurmd; do PATH="$$PATH:/usr/sbin" command -v $$name >/dev/null || { echo "make test-slurm needs $$name; on Debian and Ubuntu: apt-get install slurm-wlm (its daemons need not run)" >&2; exit 2; }; done
	$(BIN)/python -m pytest tests/slurm $(ARGS)

lint: env  ## ruff (rules and format), mypy --strict on rlcore/, imports against what is declared
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/dependencies.py

docs: env  ## the documentation as a site with search, in build/docs (half a minute; no network): a folder to deploy; ARGS="--screenshots FOLDER"
	$(BIN)/python -m tools.site $(ARGS)

pictures: env  ## the pictures of the documentation, in docs/pictures; ARGS="learning --measure": with new runs, minutes
	$(BIN)/python -m tools.pictures $(ARGS)

format: env  ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: env  ## 60 steps of the quickstart task; the last line is one JSON object
	$(BIN)/python -m benchmarks.step $(ARGS)

bench-algorithms: env  ## every recipe learns the quickstart's task, three seeds each; hours; resumes where it was stopped
	$(BIN)/python -m benchmarks.algorithms $(ARGS)

bench-curriculum: env  ## updates to an accuracy with and without a curriculum, three seeds; eight minutes
	$(BIN)/python -m benchmarks.curriculum $(ARGS)

bench-sources: env  ## one model learns two sources, each with its own algorithm, three seeds; fifteen minutes
	$(BIN)/python -m benchmarks.two_sources $(ARGS)

bench-parity: env  ## what each layout of torch and of ColossalAI computes beside one process; ARGS=--all: four processes too; five minutes
	$(BIN)/python -m benchmarks.parity --colossalai "$$($(BIN)/rlcore env build colossalai-cpu)" $(ARGS)

bench-engines: env  ## the quickstart's task with each inference backend, local and on Ray; an hour; resumes where it was stopped
	$(BIN)/rlcore env build vllm-cpu
	$(BIN)/rlcore env build sglang-cpu
	$(BIN)/python -m benchmarks.engines $(ARGS)

bench-layouts: env  ## the quickstart's task with torch and ColossalAI in each layout, on Ray, with LoRA, with vLLM; an hour; resumes where it was stopped
	$(BIN)/rlcore env build vllm-cpu
	$(BIN)/rlcore env build colossalai-cpu
	$(BIN)/python -m benchmarks.layouts $(ARGS)

bench-rewards: env  ## what judging costs: mathematics, jailed programs, items that hang; two workers, five minutes
	$(BIN)/python -m benchmarks.rewards $(ARGS)

bench-data: env  ## seconds to the first step on 200,000 rows, cold and warm, beside the tokenizer and the reward's check alone; ten minutes
	$(BIN)/python -W ignore -m benchmarks.large_data $(ARGS)

bench-verdicts: env  ## verdicts of mathematics, math-verify alone and boxed, on published tables; half a minute
	$(BIN)/python -W ignore -m benchmarks.verdicts

bench-unsafe: env  ## hostile programs with and without the sandbox; a few minutes
	$(BIN)/python -m benchmarks.unsafe

bench-overlap: env  ## what overlapping gains, with backends that sleep, on Ray; ten minutes
	$(BIN)/python -m benchmarks.overlap $(ARGS)

bench-tails: env  ## what a heavy tail of episode lengths costs the trainer, with cuts and with more in flight, on Ray; ten minutes
	$(BIN)/python -m benchmarks.tails $(ARGS)

architectures: env  ## which architectures the transformers backend serves, and how exactly, for docs/how_to/inference.md; one minute
	$(BIN)/python -W ignore -m benchmarks.architectures $(ARGS)

bench-processes: env  ## the quickstart's task alternating in one process, and overlapping as processes; ten minutes
	$(BIN)/python -m benchmarks.processes $(ARGS)

bench-peers: env .peers/.installed  ## rlcore and TRL on the same work, alternating, on CPUs (on a card: gpu); forty minutes, five with ARGS='--shape quickstart'
	$(BIN)/python -W ignore -m benchmarks.peers --peer .peers/bin/python $(ARGS)

.peers/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .peers
	.peers/bin/pip install --quiet --constraint constraints.txt py-spy trl torch transformers
	@touch $@

bench-first-step: env .peers/.installed  ## how long a newcomer's first program takes to its first update, beside TRL's; three minutes
	$(BIN)/python -W ignore -m benchmarks.first_step --peer .peers/bin/python $(ARGS)

bench-flames: env .peers/.installed  ## where the time of a step of bench-peers goes, as flame graphs in docs/; two minutes
	$(BIN)/python -W ignore -m benchmarks.peers --peer .peers/bin/python --flames docs $(ARGS)

bench-generation: env  ## tokens a second of the transformers backend beside `generate`; five minutes
	$(BIN)/python -W ignore -m benchmarks.generation $(ARGS)

bench-evaluation: env  ## what evaluating while it trains costs the trainer of the quickstart on Ray; six minutes
	$(BIN)/python -m benchmarks.evaluation $(ARGS)

bench-checkpoint: env  ## how long a checkpoint of 50 MB of weights keeps the training waiting; two minutes; ARGS=--layouts: its bytes a parameter
	$(BIN)/python -m benchmarks.checkpoint $(ARGS)

bench-files: env  ## what a run of 10 000 steps of a 7B model leaves on its disk, file by file; four minutes
	$(BIN)/python -m benchmarks.files $(ARGS)

bench-packing: env  ## one update of 10 M weights: packed, padded, and the code before; ten minutes
	$(BIN)/python -m benchmarks.packing $(ARGS)

bench-weights: env  ## GB/s of every transport of weights beside a copy in memory
	$(BIN)/python -m benchmarks.weights $(ARGS)

bench-updates: env  ## 200 updates of each engine while it generates, in each of its forms; eight minutes
	$(BIN)/rlcore env build vllm-cpu
	$(BIN)/rlcore env build sglang-cpu
	$(BIN)/python -m benchmarks.engine_updates $(ARGS)

bench-weights-paper: env  ## what an update of a large model moves, on paper; the table of docs/explanation/bubble.md
	$(BIN)/python -m benchmarks.weights_paper $(ARGS)

bench-scale-paper: env  ## what a run on 1,000 devices asks of each part, on paper; the tables of docs/explanation/scale.md; ARGS=--measure: sizes and seconds of this machine first
	$(BIN)/python -m benchmarks.scale_paper $(ARGS)

bench-coordinator: env  ## groups a second through the schedule's actor, from eight processes
	$(BIN)/python -m benchmarks.coordinator $(ARGS)

bench-gateway: env  ## what a gateway process costs a call, with up to 512 episodes at once, and after long histories; four minutes
	$(BIN)/python -m benchmarks.gateway $(ARGS)

bench-simulation: env  ## the simulated runtime against real runs on Ray, on configurations chosen by seed
	$(BIN)/python -m benchmarks.simulation $(ARGS)

planning: env  ## the table and the plot of docs/explanation/bubble.md, by simulation; ten minutes
	$(BIN)/python -m benchmarks.planning $(ARGS)

crash-matrix: env  ## a run killed before each of its events, and resumed; five minutes; ARGS=--write: the table of docs/explanation/crashes.md
	$(BIN)/python -m tests.crash $(ARGS)

chaos: env  ## runs whose processes and nodes are killed, stopped and cut off; 40 minutes; needs root and iproute2 for the link; ARGS=--write: the tables
	$(BIN)/python -m tests.chaos $(ARGS)

bench-help: env  ## CPU seconds of `rlcore --help`
	$(BIN)/python -m benchmarks.help

bench-report: env  ## ten thousand rollouts in the report, in a headless Chromium (apt-get install chromium): bytes, seconds to open, milliseconds of a filter
	$(BIN)/python -m benchmarks.report $(ARGS)

bench-logprobs: env  ## peak memory and time of loss and backward at a vocabulary of 151 936, beside a plain log-softmax; four minutes
	$(BIN)/python -m benchmarks.logprobs $(ARGS)

bench-schedule: env  ## events a second of the coordinator
	$(BIN)/python -m benchmarks.schedule

mutation: env  ## do the tests notice wrong estimators and losses? half an hour; resumes where it was stopped
	@$(BIN)/python -c "import cosmic_ray" 2>/dev/null || $(BIN)/pip install --quiet --constraint constraints.txt -e '.[mutation]'
	$(BIN)/python -m benchmarks.mutation $(ARGS)

gpu-wheels: env  ## the wheels that `make gpu` needs on a machine without network, into .gpu/wheels: 5 MB
	$(BIN)/python -m benchmarks.gpu.wheels $(ARGS)

gpu:  ## first light on a CUDA GPU, and rlcore beside TRL there, without network, after gpu-wheels; DEVICE=cpu tries it with tiny models
	$(if $(filter cpu CPU,$(DEVICE)),$(MAKE) --no-print-directory env >&2 && exec $(BIN)/python,$(PYTHON)) -m benchmarks.gpu --device $(or $(DEVICE),cuda) $(ARGS)

gpu-engines:  ## the backend vllm on CUDA GPUs, and beside TRL with vLLM, in environments that it makes: needs a package index
	$(PYTHON) -m benchmarks.gpu_engines $(ARGS)

clean:  ## remove the environment and everything built
	rm -rf $(VENV) .peers build dist .pytest_cache .mypy_cache .ruff_cache
