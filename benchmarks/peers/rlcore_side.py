"""One run of rlcore on a folder of ``work``: ``python -m benchmarks.peers.rlcore_side FOLDER THREADS STALENESS [CHANGES]``. The last line
is one JSON object. ``STALENESS`` 0: in turns in one process; 1: producer and trainer overlap, as processes. ``CHANGES``: a JSON object of
sections, whose settings stand instead of those below."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.arithmetic import arithmetic
from benchmarks.peers.cut_engine import FOLDER
from benchmarks.peers.work import Work, clocks, peak_bytes, spent
from rlcore.entry import make_plan
from rlcore.runtime import Progress, Summary, run
from rlcore.testing import PluginFolder


class Marks(Progress):
    """The clocks at the end of each update."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.seen: list[tuple[float, float]] = []
        self.metrics: list[Mapping[str, float]] = []

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called by the run."""
        self.seen.append(clocks(self._device))
        self.metrics.append(metrics)


def main(folder: Path, threads: int, staleness: int, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Train, then print the figures."""
    import torch

    torch.set_num_threads(threads)
    os.environ[FOLDER] = str(folder)
    work = Work.read(folder)
    marks = Marks(work.device)
    with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
        plugins = PluginFolder(Path(name) / "plugins")
        plugins.install("bench-peers", target="benchmarks.peers.plugin")
        with plugins:
            os.environ.update(plugins.environment)
            values = settings(work, folder, Path(name), threads, staleness)
            summary = run(make_plan(values | {section: {**values[section], **of} for section, of in changes.items()}), marks)
    figures = {**spent(marks.seen, work), "peak_bytes": peak_bytes(work.device), **outcome(summary, marks, work)}
    if (threads, staleness, work.device) == (1, 0, "cpu"):
        figures["arithmetic"] = arithmetic(folder, work, figures["mean_length"], figures["seconds"])
    print(json.dumps(figures))


def outcome(summary: Summary, marks: Marks, work: Work) -> dict[str, Any]:
    """Reward, lengths, and of the steps that count the seconds by activity."""
    counted = marks.metrics[-work.steps :]
    mean = {name: sum(metrics.get(name, 0.0) for metrics in counted) / len(counted) for name in counted[-1] if name.startswith("time/")}
    lengths = [metrics["response_length/mean"] for metrics in marks.metrics]
    return {"reward": marks.metrics[-1]["reward/mean"], "mean_length": sum(lengths) / len(lengths), "split": mean}


def settings(work: Work, folder: Path, runs: Path, threads: int, staleness: int) -> dict[str, Any]:
    """The hyperparameters of ``work``, the rest of rlcore as it comes."""
    return {
        "run": {"run_dir": str(runs), "runtime": "local", "seed": 0, "num_episodes": 1000, "max_steps": work.warmup + work.steps},
        "model": {"model": str(folder / "model")},
        "data": {"dataset": str(folder / "train.jsonl"), "max_prompt_tokens": 512, "system_prompt": ""},
        "sampling": {"num_generations": work.group, "temperature": 1.0, "max_new_tokens": work.new_tokens},
        "inference": {
            "name": "transformers" if work.sigma is None else "cut_transformers",
            "dtype": work.dtype,
            "device": work.device,
            "options": {"threads": threads},
        },
        "training": {
            "name": "torch",
            "train_batch_size": work.prompts,
            "train_microbatch_size": work.forward_rollouts,
            "dtype": work.dtype,
            "device": work.device,
            "learning_rate": work.learning_rate,
            "warmup_steps": 0,
            "min_lr_ratio": 1.0,
            "betas": list(work.betas),
            "weight_decay": work.weight_decay,
            "max_grad_norm": work.max_grad_norm,
            "options": {"threads": threads},
        },
        "algorithm": {"name": "grpo", "kl_coeff": 0.0},
        "rewards": [{"name": "boxed" if work.reward == "answer" else "parity"}],
        "schedule": {"max_staleness": staleness},
        "eval": {"eval_interval": 0},
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]) if len(sys.argv) > 4 else {})
