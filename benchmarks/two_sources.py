"""`make bench-sources`: one model learns two sources at once, each with its own algorithm. The last line is one JSON object.

``sort``: the quickstart's first task, GRPO with groups of 8 and a reward that compares the boxed answer. ``tools``: its second task, an
environment in which the model may call a calculator, RLOO with groups of 4. One tiny model has half learned both. For each seed: the
held-out accuracy of each source before and after, and the end of its prompts in the ledger.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.digits_tokenizer import build_tokenizer
from rlcore_plugin_quickstart.recipe import CALCULATE, SORT, source
from rlcore_plugin_quickstart.warmstart import Encoded, encode, greedy_accuracy, new_model, save_model

from rlcore.api import RunError
from rlcore.entry import make_plan
from rlcore.runtime import run

TASKS = {"sort": SORT, "tools": CALCULATE}
N_TRAIN, N_HELDOUT = 1024, 128
LESSON_BATCH, LESSON_RATE, MOST_LESSONS = 64, 3e-3, 400
ENOUGH = 0.4
"""The greedy accuracy on a task's problems at which its lessons end: half learned."""
RUN = """
[run]
seed = {seed}
max_steps = {updates}
num_episodes = 100
run_dir = "{folder}/runs"

[model]
model = "{folder}/base"

[data]
system_prompt = ""
max_prompt_tokens = 64

[sampling]
max_new_tokens = 32

[training]
train_batch_size = 32
learning_rate = 4e-4
warmup_steps = 5
betas = [0.9, 0.95]

[eval]
eval_interval = 20
eval_temperature = 0.0

[[sources]]
name = "sort"
weight = 2
data = {{ dataset = "{folder}/sort-train.jsonl" }}
sampling = {{ num_generations = 8 }}
algorithm = {{ name = "grpo" }}
rewards = [{{ name = "boxed" }}]
eval = {{ eval_dataset = {{ sort = "{folder}/sort-heldout.jsonl" }} }}

[[sources]]
name = "tools"
weight = 1
data = {{ dataset = "{folder}/tools-train.jsonl" }}
sampling = {{ num_generations = 4, environment = "{folder}/calculator.py:play" }}
algorithm = {{ name = "rloo" }}
rewards = [{{ name = "environment" }}]
eval = {{ eval_dataset = {{ tools = "{folder}/tools-heldout.jsonl" }} }}
"""


def main() -> None:
    """Run each seed, print the table and the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=100, metavar="N", help="updates of a run [100]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="seeds [0 1 2]")
    args = parser.parse_args()
    found = {}
    for seed in args.seeds:
        with TemporaryDirectory(prefix="rlcore-bench-") as name:
            found[seed] = _measure(Path(name), seed, args.updates)
        print(f"seed {seed}: {found[seed]}", file=sys.stderr, flush=True)
    _show(found)
    print(json.dumps({"updates": args.updates, "seeds": found}))


def _measure(folder: Path, seed: int, updates: int) -> dict[str, Any]:
    """Make the folder, run, and return accuracies and ledger by source."""
    _write_base(folder, seed)
    (folder / "run.toml").write_text(RUN.format(folder=folder, seed=seed, updates=updates), encoding="utf-8")
    summary = run(make_plan(folder / "run.toml"))
    lines = [json.loads(line) for line in (summary.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    accuracies = {task: [line[f"eval/{task}"] for line in lines if f"eval/{task}" in line] for task in TASKS}
    return {"accuracy": {task: [values[0], values[-1]] for task, values in accuracies.items()}, "ledger": summary.as_json()["ledger"]}


def _write_base(folder: Path, seed: int) -> None:
    """Write the data of both tasks, the environment, and a model that has half learned both."""
    tokenizer = build_tokenizer(tools=True)
    splits = {name: task.split(seed, N_TRAIN, N_HELDOUT) for name, task in TASKS.items()}
    for name, split in splits.items():
        for part in ("train", "heldout"):
            rows = (json.dumps(problem.row()) + "\n" for problem in getattr(split, part))
            (folder / f"{name}-{part}.jsonl").write_text("".join(rows), encoding="utf-8")
    shutil.copyfile(source(CALCULATE), folder / CALCULATE.file)
    lessons = {name: encode([one.lesson for one in split.train], tokenizer, TASKS[name].tools) for name, split in splits.items()}
    checks = {name: encode([one.solution for one in split.train[:192]], tokenizer, TASKS[name].tools) for name, split in splits.items()}
    model = _half_learned(lessons, checks, seed, len(tokenizer))
    save_model(model, folder / "base")
    tokenizer.save_pretrained(folder / "base")


def _half_learned(lessons: Mapping[str, Encoded], checks: Mapping[str, Encoded], seed: int, vocabulary: int) -> Any:
    """Return a model that answers some problems of each task right: a step on the task that it knows least, until it knows both enough."""
    model, rng = new_model(seed, vocabulary=vocabulary), np.random.default_rng([seed, 2])
    optimizer = torch.optim.AdamW(model.parameters(), lr=LESSON_RATE, weight_decay=0.01)
    for _ in range(MOST_LESSONS):
        known = {name: greedy_accuracy(model, check) for name, check in checks.items()}
        least = min(known, key=lambda name: known[name])
        if known[least] >= ENOUGH:
            print(f"base model: {known}", file=sys.stderr, flush=True)
            return model
        data = lessons[least]
        for _ in range(2):
            _learn(model, optimizer, data.take(rng.choice(len(data.ids), LESSON_BATCH, replace=False)))
    raise RunError(f"the base model has not half learned both tasks after {2 * MOST_LESSONS} steps; try another seed")


def _learn(model: Any, optimizer: torch.optim.Optimizer, batch: Encoded) -> None:
    """Take a step of supervised learning on the answers."""
    logits, wanted = model(batch.ids).logits[:, :-1], batch.answer[:, 1:]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(logits[wanted], batch.ids[:, 1:][wanted]).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def _show(found: Mapping[int, Mapping[str, Any]]) -> None:
    table = Table("source", "held-out accuracy before", "after", title="by seed")
    for task in TASKS:
        before, after = ([of["accuracy"][task][place] for of in found.values()] for place in (0, 1))
        table.add_row(task, *(" ".join(f"{value:.2f}" for value in values) for values in (before, after)))
    Console(stderr=True).print(table)


if __name__ == "__main__":
    main()
