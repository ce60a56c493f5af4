"""`make bench-layouts`: the quickstart's task with each layout of the trainers: `torch` in one process, data-parallel, FSDP2,
tensor-parallel, LoRA; `colossalai`, whose ranks have an environment of their own, with ZeRO, tensor-parallel and as a pipeline; on Ray, and
with an engine of vLLM, which takes the adapters of LoRA by name.

Of each run: accuracy on held-out problems before and after, seconds an update, tokens trained a second. The machine has few cores, so more
trainers are no faster here: the figures say that a layout learns the same, not what it gains. ``--only NAME`` measures some of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore_plugin_quickstart.digits_tokenizer import build_tokenizer
from rlcore_plugin_quickstart.recipe import N_HELDOUT, N_TRAIN
from rlcore_plugin_quickstart.task import make_split
from rlcore_plugin_quickstart.warmstart import WarmStartSettings, save_model, warm_start

import rlcore
from benchmarks.engines import environment_of
from benchmarks.kept_cells import CellBench, Row

ROOT = Path(__file__).parents[1]
ON_RAY = {"run.runtime": "ray", "num_trainers": 2}
LORA = {"lora_rank": 16, "learning_rate": 3e-3}
VLLM = {"inference.name": "vllm"}
COLOSSAL = {"training.name": "colossalai"}
ENVIRONMENTS = {"vllm": "vllm-cpu", "colossalai": "colossalai-cpu"}
"""Backends that have an environment of their own, and its lock."""
OTHER_WORK = 4.0
"""A load that the run before, which ended just now, does not explain."""
THREE_HEADS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "one": ("one process", {"run.runtime": "local"}),
    "data-2": ("Ray, two ranks, each the whole model", ON_RAY),
    "zero-2": ("Ray, two ranks, FSDP2 (`-zero 2`)", {**ON_RAY, "zero_stage": 2}),
    "zero-3": ("Ray, two ranks, FSDP2, resharded (`-zero 3`)", {**ON_RAY, "zero_stage": 3}),
    "tensor-3": (
        "Ray, three ranks, tensor-parallel (`-tp 3`: the model has three heads)",
        {**ON_RAY, "num_trainers": 3, "tensor_parallel_size": 3},
    ),
    "lora": ("one process, LoRA", {"run.runtime": "local", **LORA}),
    "lora-zero-2": ("Ray, two ranks, FSDP2, LoRA", {**ON_RAY, "zero_stage": 2, **LORA}),
    "zero-2-vllm": ("Ray, two ranks, FSDP2, vLLM", {**ON_RAY, "zero_stage": 2, **VLLM}),
    "lora-vllm": ("one process, LoRA, adapters in vLLM", {"run.runtime": "local", **LORA, **VLLM}),
}
FOUR_HEADS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "one-4-heads": ("four heads: one process", {"run.runtime": "local"}),
    "colossal-zero-2": ("four heads: Ray, ColossalAI, two ranks, ZeRO (`-zero 2`)", {**ON_RAY, **COLOSSAL, "zero_stage": 2}),
    "colossal-tensor-2": ("four heads: Ray, ColossalAI, `-tp 2`", {**ON_RAY, **COLOSSAL, "tensor_parallel_size": 2}),
    "colossal-pipeline-2": ("four heads: Ray, ColossalAI, `-pp 2`", {**ON_RAY, **COLOSSAL, "pipeline_parallel_size": 2}),
    "colossal-zero-2-vllm": ("four heads: Ray, ColossalAI, `-zero 2`, vLLM", {**ON_RAY, **COLOSSAL, "zero_stage": 2, **VLLM}),
    "colossal-tensor-2-vllm": ("four heads: Ray, ColossalAI, `-tp 2`, vLLM", {**ON_RAY, **COLOSSAL, "tensor_parallel_size": 2, **VLLM}),
    "colossal-pipeline-2-vllm": (
        "four heads: Ray, ColossalAI, `-pp 2`, vLLM",
        {**ON_RAY, **COLOSSAL, "pipeline_parallel_size": 2, **VLLM},
    ),
}
"""Of these the base model is made with four heads, not three: two tensor-parallel ranks can share them."""
CELLS = {**THREE_HEADS, **FOUR_HEADS}


def measure(cell: str, toml: Path, steps: int) -> dict[str, Any]:
    """One run, and what it says."""
    settings = {**CELLS[cell][1], "max_steps": steps, "eval_interval": steps}
    for side in ("inference", "training"):
        if (lock := ENVIRONMENTS.get(settings.get(f"{side}.name", ""))) is not None:
            settings[f"{side}.environment"] = str(environment_of(lock))
    summary = rlcore.train(with_four_heads(toml) if cell in FOUR_HEADS else toml, **settings)
    return {
        "steps": summary.steps,
        "accuracy_before": summary.accuracy_before,
        "accuracy_after": summary.accuracy_after,
        "seconds_per_step": round(summary.train_seconds / summary.steps, 3),
        "tokens_per_second": round(summary.tokens_per_second),
    }


def with_four_heads(toml: Path) -> Path:
    """The run.toml of a copy of the quickstart whose base model has four heads, which is made the first time."""
    copy = toml.parent.with_name("quickstart-4-heads")
    if not copy.exists():
        started = warm_start(make_split(0, N_TRAIN, N_HELDOUT).train, build_tokenizer(), 0, WarmStartSettings(heads=4), print)
        shutil.copytree(toml.parent, copy, ignore=shutil.ignore_patterns("runs"))
        save_model(started.model, copy / "base")
    return copy / toml.name


def said(rows: Sequence[Row]) -> str:
    """What the figures are not."""
    busy = "; ".join(CELLS[row["cell"]][0] for row in rows if row["load"] > OTHER_WORK)
    beside = f" Other work ran on the machine beside: {busy}; their times are too long." if busy else ""
    return f"ranks share these cores with the producer, so that none of the times is a gain.{beside}"


BENCH = CellBench(
    name="layouts",
    about=__doc__ or "",
    cells=list(CELLS),
    results=ROOT / "benchmarks" / "results" / "layouts.jsonl",
    page=ROOT / "docs" / "explanation" / "layouts.md",
    measure=lambda cell, toml, steps: measure(cell, toml, steps),
    columns={
        "run": lambda row: CELLS[row["cell"]][0],
        "held-out accuracy": lambda row: f"{row['accuracy_before']:.3f} to {row['accuracy_after']:.3f}",
        "s/step": lambda row: f"{row['seconds_per_step']:.2f}",
        "tokens/s": lambda row: f"{row['tokens_per_second']}",
    },
    said=said,
)


if __name__ == "__main__":
    raise SystemExit(BENCH.main())
