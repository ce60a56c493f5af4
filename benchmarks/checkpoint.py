"""`make bench-checkpoint`: how long training stands still for a checkpoint, as a share of a step: the quickstart's task with trainer `torch` and a
model of 50 MB of weights, in one process, a checkpoint after every second update.

``stall``: seconds that the loop spends beginning and ending a checkpoint; the rest is written beside the training. ``next_step``: the update
beside which it is written, over the others, since both share the cores. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rlcore_plugin_quickstart.assets import prepare
from transformers.utils.logging import disable_progress_bar

import rlcore
from rlcore.runtime.training_run import TrainingRun

LAYERS = 5
SIZES: dict[str, Any] = {
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": LAYERS,
    "layer_types": ["full_attention"] * LAYERS,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "head_dim": 64,
}
EVERY = 2


def main() -> None:
    """Train, then print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
        folder = Path(name)
        assets = prepare(folder / "quickstart", 0, lambda line: console.print(line, highlight=False))
        weights = write_model(assets.run_toml.parent / "base", folder / "model")
        stalls: list[float] = []
        with timed(stalls):
            summary = rlcore.train(
                assets.run_toml, model=str(folder / "model"), save_interval=EVERY, max_steps=arguments.steps, eval_interval=0, **LOCAL
            )
        seconds = [json.loads(line) for line in (summary.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    print(json.dumps(figures(weights, stalls, {row["step"]: row["seconds"] for row in seconds if "seconds" in row})))


LOCAL = {"run.runtime": "local", "max_staleness": 0, "run_dir": tempfile.gettempdir()}


def write_model(like: Path, folder: Path) -> int:
    """A model with the tokenizer of another and random weights; their bytes."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(like, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(like, **SIZES))
    model.save_pretrained(folder)
    return sum(weight.numel() * weight.element_size() for weight in model.parameters())


def timed(stalls: list[float]) -> Any:
    """Inside, what the loop spends on each checkpoint is added to ``stalls``, one figure a checkpoint."""

    def counted(call: Callable[..., Any], begins: bool) -> Callable[..., Any]:
        def timing(run: TrainingRun, *arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            outermost, run.timing_now = not getattr(run, "timing_now", False), True  # type: ignore[attr-defined]
            try:
                return call(run, *arguments, **named)
            finally:
                if outermost:
                    run.timing_now = False  # type: ignore[attr-defined]
                    if begins:
                        stalls.append(0.0)
                    if stalls:
                        stalls[-1] += time.perf_counter() - start

        return timing

    return mock.patch.multiple(TrainingRun, _save=counted(TrainingRun._save, True), _end_save=counted(TrainingRun._end_save, False))


def figures(weights: int, stalls: list[float], seconds: dict[int, float]) -> dict[str, Any]:
    """Medians; the first two updates warm up, and the last checkpoints are waited for at the end of the run."""
    steps = sorted(seconds)[2:]
    beside = [seconds[step] for step in steps if step % EVERY]
    alone = [seconds[step] for step in steps if step % EVERY == 0]
    stall = statistics.median(stalls[1 : len(steps) // EVERY])
    return {
        "weights_mb": round(weights / 1e6, 1),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "checkpoints": len(stalls),
        "step_seconds": round(statistics.median(alone), 3),
        "stall_seconds": round(stall, 4),
        "stall_share": round(stall / statistics.median(alone), 4),
        "next_step": round(statistics.median(beside) / statistics.median(alone), 3),
    }


if __name__ == "__main__":
    main()
