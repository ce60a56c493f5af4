"""`make bench-tails`: what a heavy tail of episode lengths costs the trainer, and what helps. The last line is one JSON object.

Two producers and two trainers on Ray, with backends that sleep instead of computing. The environment, the gateway and the schedule are
real. An episode has three calls of the policy, 0.1 s each. Between them it sleeps for a lognormal time (sigma 1, mean 2 s in all, cut at 8
means). An update has 8 prompts of 4 episodes and takes 2 s. Without more, 4 prompts are in flight for each producer, at staleness 4.

``cuts``: 2 more episodes a prompt, of which the last 2 are cut. ``adaptive``: as many prompts in flight as keep the engine busy, within
the staleness. ``partial``: updates do not wait for episodes that would be too old; their old tokens do not train. It is measured at
staleness 1, with adaptive flight, where it matters most.

Shares are of the seconds that the workers account for, over the updates after the first two. ``trainer_idle`` is whatever is not training.
``accounted``: the least and the largest sum of the categories of a worker, as a share of the seconds of the run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from rlcore.entry import make_plan
from rlcore.runtime import run
from rlcore.testing import PluginFolder, write_fake_model

BATCH, GROUP, SPARE, IN_FLIGHT = 8, 4, 2, 4
WARM_UP = 2
SLOTS, TOKENS, TOKEN_SECONDS, UPDATE_SECONDS = 16, 10, 0.01, 2.0
ENVIRONMENT = """
import asyncio, math, random


async def play(model, row):
    messages = list(row["messages"])
    seconds = min(16.0, 2.0 * random.lognormvariate(-0.5, 1.0))
    for _ in range(3):
        answer = await model.chat(messages, max_tokens=10)
        messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "more"}]
        await asyncio.sleep(seconds / 3)
    return random.random()


play.episodes_per_process = 512
"""
"""Thinks for a lognormal time of mean 2 s: the mean of the logarithm is minus half of its variance."""
_ADAPTIVE = {"max_in_flight": "auto"}
RUNS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "cuts": {"sampling": {"oversampling": SPARE}},
    "adaptive": {"inference": _ADAPTIVE},
    "cuts-and-adaptive": {"sampling": {"oversampling": SPARE}, "inference": _ADAPTIVE},
    "staleness-1": {"inference": _ADAPTIVE, "schedule": {"max_staleness": 1}},
    "staleness-1-partial": {"inference": _ADAPTIVE, "schedule": {"max_staleness": 1, "partial_rollouts": True}},
}


def main() -> None:
    """Every run, the table, the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=16, metavar="N", help="updates of each run that count, after the first two [16]")
    parser.add_argument(
        "--only", nargs="+", choices=RUNS, metavar="RUN", default=list(RUNS), help=f"these runs alone, of {', '.join(RUNS)}"
    )
    args = parser.parse_args()
    with TemporaryDirectory(prefix="rlcore-bench-") as name:
        folder = Path(name)
        write_fake_model(folder / "model")
        rows = [{"messages": {"role": "user", "content": f"say {number}"}, "gt_answer": f"{number}"} for number in range(10 * BATCH)]
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        (folder / "slow.py").write_text(ENVIRONMENT, encoding="utf-8")
        plugins = PluginFolder(folder / "plugins")
        plugins.install("fakes", target="rlcore.testing.fake_plugin")
        plugins.install("paced", target="benchmarks.paced_plugin")
        with plugins:
            measured = {kind: _told(kind, folder, args.updates) for kind in RUNS if kind in args.only}
    if "plain" in measured:
        for of in measured.values():
            of["speedup"] = round(of["updates_per_second"] / measured["plain"]["updates_per_second"], 2)
    _show(measured)
    print(json.dumps({**measured, "updates": args.updates, "update_seconds": UPDATE_SECONDS}))


def _told(kind: str, folder: Path, updates: int) -> dict[str, Any]:
    """One run of ``RUNS``, with a line before and after it."""
    print(f"{kind}: {WARM_UP} + {updates} updates …", file=sys.stderr, flush=True)
    found = _measure(folder, RUNS[kind], updates)
    print(f"{kind}: {found['updates_per_second']} updates a second", file=sys.stderr, flush=True)
    return found


def _measure(folder: Path, more: Mapping[str, Mapping[str, Any]], updates: int) -> dict[str, Any]:
    """One run, and its figures after the warm-up."""
    summary = run(make_plan(_config(folder, more, WARM_UP + updates)))
    steps = [step for step in _lines(summary.run / "metrics.jsonl") if "seconds" in step][WARM_UP:]
    seconds = sum(step["seconds"] for step in steps)
    accounted = [sum(of.values()) / summary.train_seconds for of in _times(summary.run).values()]
    return {
        "updates_per_second": round(len(steps) / seconds, 4),
        "trainer_idle": round(1.0 - _share(steps, "trainer", "compute"), 3),
        "producers_generate": round(_share(steps, "producers", "compute", "wasted"), 3),
        "producers_wait_for_environments": round(_share(steps, "producers", "blocked_by_environments"), 3),
        "in_flight": round(_mean(steps, "in_flight"), 1),
        "staleness": round(_mean(steps, "staleness/mean"), 2),
        "staleness_max": max(step["staleness/max"] for step in steps),
        "cut_share": round(_mean(steps, "cut_share"), 3),
        "accounted": [round(min(accounted), 4), round(max(accounted), 4)],
    }


def _config(folder: Path, more: Mapping[str, Mapping[str, Any]], steps: int) -> dict[str, Any]:
    engine = {"slots": SLOTS, "mean_length": TOKENS, "seconds_per_token": TOKEN_SECONDS}
    config: dict[str, dict[str, Any]] = {
        "run": {"runtime": "ray", "run_dir": str(folder / "runs"), "num_episodes": steps, "max_steps": steps},
        "model": {"model": str(folder / "model")},
        "data": {"dataset": str(folder / "train.jsonl")},
        "sampling": {
            "environment": f"{folder}/slow.py:play",
            "num_generations": GROUP,
            "max_new_tokens": 3 * TOKENS,
            "max_context_tokens": 200,
            "options": {"workers": 1, "deadline": 600.0},
        },
        "inference": {
            "name": "paced",
            "num_inferencer": 2,
            "inference_batch_size": IN_FLIGHT,
            "max_in_flight": IN_FLIGHT,
            "options": engine,
        },
        "training": {"name": "paced", "num_trainers": 2, "train_batch_size": BATCH, "options": {"update_seconds": UPDATE_SECONDS}},
        "algorithm": {"name": "fake"},
        "schedule": {"max_staleness": 4, "reward_workers": 1},
        "log": {"rollout_interval": 0},
    }
    return {**{name: {**section, **more.get(name, {})} for name, section in config.items()}, "rewards": [{"name": "environment"}]}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _times(folder: Path) -> Mapping[str, Mapping[str, float]]:
    """Return worker -> category -> seconds of the whole run."""
    return next(line["workers"] for line in _lines(folder / "times.jsonl") if line.get("total"))


def _share(steps: Sequence[Mapping[str, float]], role: str, *categories: str) -> float:
    """Of the seconds that the workers of a role account for."""
    total = sum(spent for step in steps for name, spent in step.items() if name.startswith(f"time/{role}/"))
    return sum(step[f"time/{role}/{category}"] for step in steps for category in categories) / total


def _mean(steps: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(step.get(name, 0.0) for step in steps) / len(steps)


def _show(measured: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table("run", *next(iter(measured.values())))
    for kind, of in measured.items():
        table.add_row(kind, *(str(value) for value in of.values()))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
