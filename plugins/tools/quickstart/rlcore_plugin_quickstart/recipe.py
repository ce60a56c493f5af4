"""The quickstart's tasks and their ``run.toml``: settings that are known to work for task and model, each with its reason."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore_plugin_quickstart.arithmetic import TOOLS, make_calculations
from rlcore_plugin_quickstart.repositories import WORDS, make_repositories
from rlcore_plugin_quickstart.task import Split, make_split

__all__ = ["N_HELDOUT", "N_TRAIN", "RECIPE_VERSION", "SORT", "TASKS", "QuickstartTask", "run_toml", "source"]

RECIPE_VERSION = 1
"""Increases with every change of task, model, warm start or data of ``sort``. Each task has its ``version``; folders of another one are not
reused."""
N_TRAIN = 2048
N_HELDOUT = 200

_TEMPLATE = """\
# The quickstart: a tiny language model learns to {doing} by reinforcement learning.
# Change what you like, then type: rlcore train {toml}
# Every setting with its value and origin: rlcore show config {toml}

[run]
project = "quickstart"
run_dir = {runs}
seed = {seed}
num_episodes = {passes} over the data would be 128 updates,
max_steps = {steps} this many are enough

[model]
model = {base}              # 0.2 M parameters; it has half learned the task

[data]
dataset = {train}
system_prompt = ""          # none: the model is too small to read one
max_prompt_tokens = {prompt}

[sampling]
num_generations = 8         # completions per prompt: they are compared with each other
temperature = 1.0
{environment}max_new_tokens = {tokens}
{options}
[inference]
name = "transformers"

[training]
name = "torch"
train_batch_size = {batch:<8} # prompts per update
learning_rate = 4e-4        # large, since the model is tiny
warmup_steps = {warmup}
betas = [0.9, 0.95]
min_lr_ratio = 0.5          # the run is short: the rate need not fall far

[algorithm]
name = "grpo"               # with its own defaults: rlcore show algo grpo; any other by --algo NAME

[[rewards]]
{reward}

[eval]
eval_dataset = {{ {task} = {heldout} }}
eval_interval = {interval}          # updates between evaluations
eval_temperature = 0.0      # greedy
"""


@dataclass(frozen=True, slots=True)
class QuickstartTask:
    """A task of the quickstart.

    ``split``: draws the problems, from a seed and the numbers of both parts. ``values``: what differs in ``run.toml``.
    ``tools``: their schemas, as far as the chat template writes them. ``words``: what the tokenizer writes as one token each.
    ``n_lessons``: problems of the warm start, 0: those to train on. ``warm_start``: see WarmStartSettings.
    ``environment``: a file of this package that is copied into the folder, where the user may change it, and its part that plays.
    ``sessions``: the environment needs a sandbox with sessions. ``version``: see RECIPE_VERSION.
    """

    name: str
    split: Callable[[int, int, int], Split[Any]]
    values: Mapping[str, object]
    tools: Sequence[dict[str, Any]] = ()
    words: Sequence[str] = ()
    n_heldout: int = N_HELDOUT
    n_lessons: int = 0
    warm_start: Mapping[str, Any] = field(default_factory=dict)
    environment: str = ""
    sessions: bool = False
    version: int = RECIPE_VERSION

    @property
    def file(self) -> str:
        """The name of the file of the environment, "" without one."""
        return self.environment.partition(":")[0]


SORT = QuickstartTask(
    "sort",
    make_split,
    {
        "doing": "sort digits",
        "passes": "2            # two passes",
        "steps": "100             #",
        "prompt": 64,
        "tokens": "16         # the longest right answer has 14 tokens",
        "options": "",
        "batch": 32,
        "reward": 'name = "boxed"              # the answer in \\boxed{} must equal gt_answer',
        "warmup": 5,
        "interval": 20,
    },
)
CALCULATE = QuickstartTask(
    "tools",
    make_calculations,
    {
        "doing": "call a calculator",
        "passes": "1            # one pass",
        "steps": "30              #",
        "prompt": 64,
        "tokens": "32         # of an episode: a right call has 8 tokens, the longest right answer 5",
        "options": """\

[sampling.options]
workers = 1                 # processes that play,
episodes_per_process = 64   # each this many episodes at the same time
""",
        "batch": 16,
        "reward": 'name = "environment"        # what play returns',
        "warmup": 5,
        "interval": 10,
    },
    tools=TOOLS,
    warm_start={"target": 0.485, "check_every": 5},
    environment="calculator.py:play",
)
REPAIR = QuickstartTask(
    "repair",
    make_repositories,
    {
        "doing": "repair small repositories",
        "passes": "1            # one pass",
        "steps": "10              #",
        "prompt": 64,
        "tokens": "16         # a right patch has 11 tokens",
        "options": """\

[sampling.options]
workers = 2                 # processes that play,
episodes_per_process = 64   # each this many episodes at the same time
""",
        "batch": 16,
        "reward": 'name = "environment"        # what play returns',
        "warmup": 2,
        "interval": 10,
    },
    n_heldout=96,
    n_lessons=32 * 400,  # none occurs twice: else the base would remember which of them have a patch, and write patches for their like
    words=WORDS,
    warm_start={"steps": 400, "batch_size": 32},
    environment="repair.py:Repair",
    sessions=True,
    version=2,
)
TASKS = {task.name: task for task in (SORT, CALCULATE, REPAIR)}


def run_toml(folder: Path, seed: int, *, aside: bool = False, task: QuickstartTask = SORT) -> str:
    """Return the text of ``folder/run.toml``. ``aside``: its paths are absolute, because the file is read from another folder."""
    here = folder.absolute() if aside else Path()
    paths = {name: here / name for name in ("runs", "base")} | {name: here / f"{name}.jsonl" for name in ("train", "heldout")}
    quoted = {name: json.dumps(path.as_posix(), ensure_ascii=False) for name, path in paths.items()}
    here_toml = shlex.quote((folder / "run.toml").as_posix())
    told = {"toml": here_toml, "seed": seed, "task": task.name, "environment": _environment(task, aside) if task.environment else ""}
    return _TEMPLATE.format(**told, **quoted, **task.values)


def _environment(task: QuickstartTask, aside: bool) -> str:
    plays = json.dumps((source(task).parent.as_posix() + "/" if aside else "") + task.environment, ensure_ascii=False)
    return f"environment = {plays}  # it asks the model through an OpenAI client, in another process\n"


def source(task: QuickstartTask) -> Path:
    """Return the file of this package with the environment of a task."""
    return Path(__file__).with_name(task.file)
