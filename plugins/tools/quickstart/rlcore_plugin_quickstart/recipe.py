"""The quickstart's ``run.toml``: settings that are known to work for this task and model, each with its reason."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

__all__ = ["N_HELDOUT", "N_TRAIN", "RECIPE_VERSION", "run_toml"]

RECIPE_VERSION = 1
"""Increases with every change of task, model, warm start or data: folders of another version are not reused."""
N_TRAIN = 2048
N_HELDOUT = 200

_TEMPLATE = """\
# The quickstart: a tiny language model learns to sort digits by reinforcement learning.
# Change what you like, then type: rlcore train {toml}
# Every setting with its value and origin: rlcore show config {toml}

[run]
project = "quickstart"
run_dir = {runs}
seed = {seed}
num_episodes = 2            # two passes over the data would be 128 updates,
max_steps = 100             # this many are enough

[model]
model = {base}              # 0.2 M parameters; it has half learned the task

[data]
dataset = {train}
system_prompt = ""          # none: the model is too small to read one
max_prompt_tokens = 64

[sampling]
num_generations = 8         # completions per prompt: they are compared with each other
temperature = 1.0
max_new_tokens = 16         # the longest right answer has 14 tokens

[inference]
name = "transformers"

[training]
name = "torch"
train_batch_size = 32       # prompts per update
learning_rate = 4e-4        # large, since the model is tiny
warmup_steps = 5
betas = [0.9, 0.95]
min_lr_ratio = 0.5          # the run is short: the rate need not fall far

[algorithm]
name = "grpo"               # with its own defaults: rlcore show algo grpo; any other by --algo NAME

[[rewards]]
name = "boxed"              # the answer in \\boxed{{}} must equal gt_answer

[eval]
eval_dataset = {{ sort = {heldout} }}
eval_interval = 20          # updates between evaluations
eval_temperature = 0.0      # greedy
"""


def run_toml(folder: Path, seed: int, *, aside: bool = False) -> str:
    """Return the text of ``folder/run.toml``. ``aside``: its paths are absolute, because the file is read from another folder."""
    here = folder.absolute() if aside else Path()
    paths = {name: here / name for name in ("runs", "base")} | {name: here / f"{name}.jsonl" for name in ("train", "heldout")}
    quoted = {name: json.dumps(path.as_posix(), ensure_ascii=False) for name, path in paths.items()}
    return _TEMPLATE.format(toml=shlex.quote((folder / "run.toml").as_posix()), seed=seed, **quoted)
