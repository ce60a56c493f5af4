"""`make bench-checkpoint`: what a checkpoint costs the training, for about 50 MB of weights. The last line is one JSON object.

A transformer of 12.5 million float32 weights, random, is trained in one process by the backends ``torch`` and ``transformers``, with a
checkpoint after every second update. ``blocked_seconds`` is the time that the loop spends in beginning a checkpoint; ``share`` is that
over an update without one, ``gap_seconds`` how much longer the update after a checkpoint takes, in which hashing and flushing go on
beside it. Medians.

``--layouts`` measures bytes instead: a checkpoint of a model of 0.5 M weights by one process and by two ranks of each layout, in bytes a
parameter (of adapters: a parameter of the adapters for the optimizer, of the whole model for the model).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch
from rlcore_plugin_quickstart.assets import prepare
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

import rlcore
from rlcore.runtime.training_run import TrainingRun

LARGE = {
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 7,
    "layer_types": ["full_attention"] * 7,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
}
SMALL = {
    **LARGE,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "layer_types": ["full_attention"] * 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}
INTERVAL = 2
LAYOUTS: dict[str, dict[str, Any]] = {
    "one process": {},
    "bfloat16": {"training.dtype": "bfloat16"},
    "bfloat16, with an export in bfloat16": {"training.dtype": "bfloat16", "log.export_dtype": "bfloat16"},
    "-t 2": {"training.num_trainers": 2},
    "-t 2 -zero 2": {"training.num_trainers": 2, "training.zero_stage": 2},
    "-t 2 -zero 3, bfloat16": {"training.num_trainers": 2, "training.zero_stage": 3, "training.dtype": "bfloat16"},
    "-t 2 -tp 2": {"training.num_trainers": 2, "training.tensor_parallel_size": 2},
    "--lora-rank 8": {"training.lora_rank": 8},
}
"""What is measured with ``--layouts``: the settings of each run."""


def main() -> None:
    """Train, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--layouts", action="store_true", help="bytes a parameter of a checkpoint of each layout, and no seconds")
    args = parser.parse_args()
    with TemporaryDirectory() as place:
        if not args.layouts:
            print(json.dumps(measure(Path(place), args.updates)))
            return
        prepare(Path(place, "demo"), 0, lambda line: None)
        enlarged(Path(place, "demo", "base"), Path(place, "small"), SMALL)
        print(json.dumps({name: weigh(Path(place), name, settings) for name, settings in LAYOUTS.items()}))


def weigh(place: Path, name: str, settings: dict[str, Any]) -> dict[str, float]:
    """Bytes a parameter of the tensors of a checkpoint, by folder, after one update."""
    summary = rlcore.train(
        place / "demo" / "run.toml",
        **{"run.runtime": "local", "eval.eval_interval": 0, **settings},
        model=str(place / "small"),
        run_dir=str(place / "runs" / name),
        train_batch_size=4,
        eval_dataset={},
        max_steps=1,
    )
    assert summary.checkpoint is not None
    held = {"parameters": count(summary.checkpoint / "model", "model*.safetensors")}
    if (adapter := summary.checkpoint / "model" / "adapter").is_dir():
        held["parameters_of_adapters"] = count(adapter, "*.safetensors")
    trained = held.get("parameters_of_adapters", held["parameters"])
    sizes = {
        "model": size(summary.checkpoint / "model", "model*.safetensors") / held["parameters"],
        "export": size(summary.checkpoint / "export", "*.safetensors") / held["parameters"],
        "trainer": size(summary.checkpoint / "trainer", "*.distcp") / trained,
    }
    found = {**held, **{folder: round(figure, 2) for folder, figure in sizes.items() if figure}}
    print(f"{name}: {found}", file=sys.stderr)
    return found


def size(folder: Path, pattern: str) -> int:
    """Bytes of the files of a folder and of those below it."""
    return sum(path.stat().st_size for path in folder.rglob(pattern))


def count(folder: Path, pattern: str) -> int:
    """Numbers in files of safetensors."""
    total = 0
    for path in folder.glob(pattern):
        with safe_open(path, "pt") as file:
            total += sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118 - it is no dict
    return total


def measure(place: Path, updates: int) -> dict[str, Any]:
    """Seconds of updates with and without a checkpoint before them."""
    prepare(place / "demo", 0, lambda line: None)
    base = enlarged(place / "demo" / "base", place / "large", LARGE)
    blocked: list[float] = []
    with mock.patch.object(TrainingRun, "_save", timed(TrainingRun._save, blocked)):
        summary = rlcore.train(
            place / "demo" / "run.toml",
            **{"run.runtime": "in_process", "inference.name": "transformers", "training.name": "torch", "eval.eval_interval": 0},
            model=str(base),
            run_dir=str(place / "runs"),
            eval_dataset={},
            max_steps=updates,
            max_staleness=0,
            save_interval=INTERVAL,
        )
    rows = [json.loads(line) for line in (summary.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    seconds = {row["step"]: row["seconds"] for row in rows if "seconds" in row}
    after = statistics.median(seconds[step] for step in seconds if step > INTERVAL and step % INTERVAL == 1)
    others = statistics.median(seconds[step] for step in seconds if step > 1 and step % INTERVAL == 0)
    stall = statistics.median(blocked[: updates // INTERVAL])
    written = sum(path.stat().st_size for path in (summary.run / "checkpoints" / f"step-{updates}").rglob("*") if path.is_file())
    return {
        "weights_mb": round((base / "model.safetensors").stat().st_size / 1e6, 1),
        "checkpoint_mb": round(written / 1e6, 1),
        "update_seconds": round(others, 3),
        "blocked_seconds": round(stall, 4),
        "share": round(stall / others, 4),
        "gap_seconds": round(after - others, 3),
    }


def enlarged(base: Path, folder: Path, sizes: dict[str, Any]) -> Path:
    """The tokenizer and the architecture of a small model, with random weights and other sizes."""
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = AutoConfig.from_pretrained(base, **sizes)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    return folder


def timed(real: Callable[[TrainingRun, int], None], seconds: list[float]) -> Callable[[TrainingRun, int], None]:
    """``_save`` that notes how long it took."""

    def save(self: TrainingRun, step: int) -> None:
        begun = time.perf_counter()
        real(self, step)
        seconds.append(time.perf_counter() - begun)

    return save


if __name__ == "__main__":
    main()
