"""`make bench-files`: what a run of 10 000 steps of a 7B model leaves on its disk, file by file. The last line is one JSON object.

The quickstart's task is trained for two updates by the backends ``transformers`` and ``torch``; its rows, with as many rollouts, workers
and bytes of text as were typed, are then written for all the steps by what writes those of a run. Checkpoints are left out: their size
follows from the model.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import track
from rlcore_plugin_quickstart.assets import prepare
from rlcore_plugin_tools.run_record import RunRecord

import rlcore
from rlcore.runlog import RunFolder

__all__ = ["Shape", "drive", "left", "rows_of", "table"]

Row = Mapping[str, Any]
_LETTERS = "etaoinshrdlu     \n"
"""A text of them is about as hard to compress as prose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a run is. ``text``: bytes of a response; ``failures``: prompts of each update that no reward can judge."""

    steps: int = 10_000
    prompts: int = 128
    generations: int = 8
    text: int = 4096
    workers: int = 24
    rollout_interval: int = 20
    eval_interval: int = 100
    eval_rows: int = 500
    failures: int = 6
    max_mb: float = 1024.0


def rows_of(run: Path) -> dict[str, Row]:
    """A row of each file of a run that made two updates and an evaluation."""
    files = {"metrics": run / "metrics.jsonl", "times": run / "times.jsonl"}
    files["eval"] = next(run.glob("eval/*/step-2.jsonl"))
    lines = {name: path.read_text(encoding="utf-8").splitlines() for name, path in files.items()}
    updates = [row for row in map(json.loads, lines["metrics"]) if row["step"] == 2 and "seconds" in row]
    rollout = next(RunRecord(run).rollouts(2))
    return {**{name: json.loads(of_file[0]) for name, of_file in lines.items()}, "metrics": updates[0], "rollouts": rollout}


def drive(made: RunFolder, shape: Shape, rows: Mapping[str, Row], console: Console | None = None) -> dict[str, float]:
    """Write all the steps; returns the bytes that each file grows by at a step that writes it."""
    text, most = "x" * shape.text, shape.max_mb * 1e6
    some = random.Random(0)
    texts = ["".join(some.choices(_LETTERS, k=shape.text)) for _ in range(64)]
    seconds = next(iter(rows["times"]["workers"].values()))
    workers = {f"producer-{number}": seconds for number in range(shape.workers)}
    rollouts = [{**rows["rollouts"], "text": texts[number % 64]} for number in range(shape.prompts * shape.generations)]
    evaluated = [{**rows["eval"], "prediction": text}] * shape.eval_rows
    failure = {"episode": 0, "prompt_id": "0123456789abcdef", "reason": "error: " + "x" * 80}
    fault = {"reward": "mine", "row": "train.jsonl:1", "reason": "x" * 80, "traceback": "x" * 2000, "text": text[:2000]}
    steps = range(1, shape.steps + 1)
    for step in track(steps, "steps", console=console) if console else steps:
        made.log("metrics", {**rows["metrics"], "step": step})
        made.log_times(workers, step)
        for _ in range(shape.failures):
            made.log_capped("failures", {"step": step, **failure})
        made.log_capped("reward_errors", fault)
        if step == 1 or step % shape.rollout_interval == 0:
            made.write_rollouts(step, rollouts, most)
        if step % shape.eval_interval == 0:
            made.write_evaluation("task", step, evaluated, most)
    last = shape.steps - shape.steps % shape.rollout_interval, shape.steps - shape.steps % shape.eval_interval
    return {
        **{f"{name}.jsonl": (made.root / f"{name}.jsonl").stat().st_size / shape.steps for name in ("metrics", "times")},
        "rollouts/step-N.jsonl.gz": (made.rollouts / f"step-{last[0]}.jsonl.gz").stat().st_size,
        "eval/TASK/step-N.jsonl": (made.evaluations / "task" / f"step-{last[1]}.jsonl").stat().st_size,
        "failures.jsonl": shape.failures * len(json.dumps({"step": 1, **failure})),
        "reward_errors.jsonl": len(json.dumps(fault)),
    }


def left(made: RunFolder) -> dict[str, int]:
    """The bytes that each kind of file takes in the end."""
    found = {path.name: path.stat().st_size for path in made.root.glob("*.jsonl")}
    places = {"rollouts/step-N.jsonl.gz": (made.rollouts, "*.jsonl.gz"), "eval/TASK/step-N.jsonl": (made.evaluations, "*/*.jsonl")}
    for name, (folder, pattern) in places.items():
        found[name] = sum(path.stat().st_size for path in folder.glob(pattern))
    return found


def table(shape: Shape, a_step: Mapping[str, float], in_the_end: Mapping[str, int]) -> str:
    """In Markdown."""
    every = {"rollouts/step-N.jsonl.gz": shape.rollout_interval, "eval/TASK/step-N.jsonl": shape.eval_interval}
    rows = [f"| file | bytes | written | MB after {shape.steps:,} steps |".replace(",", " "), "|---|---:|---|---:|"]
    for name, size in a_step.items():
        when = f"every {every[name]} steps" if name in every else "each step"
        rows.append(f"| `{name}` | {size:,.0f} | {when} | {in_the_end[name] / 1e6:.1f} |".replace(",", " "))
    return "\n".join(rows)


def main() -> None:
    """Train two updates, write all of them, print what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in ((field, getattr(Shape(), field)) for field in Shape.__slots__):
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"({value})")
    shape, console = Shape(**vars(parser.parse_args())), Console(stderr=True)
    with TemporaryDirectory(prefix="rlcore-files-") as name:
        place = Path(name)
        prepare(place / "demo", 0, lambda line: None)
        backends = {"run.runtime": "in_process", "inference.name": "transformers", "training.name": "torch", "eval.eval_interval": 1}
        run = rlcore.train(
            place / "demo" / "run.toml", **backends, run_dir=str(place / "runs"), max_steps=2, max_staleness=0, rollout_interval=1
        ).run
        made = RunFolder.create(place, "long", save_dir=None, eval_save_dir=None, rollout_save_dir=None)
        a_step = drive(made, shape, rows_of(run), console)
        found = left(made)
    print(table(shape, a_step, found))
    print(json.dumps({"bytes_a_step": {key: round(value) for key, value in a_step.items()}, "bytes": found, "total": sum(found.values())}))


if __name__ == "__main__":
    main()
