"""What each layout of the trainer `colossalai` computes beside trainer `torch` in one process and float64, on a tiny Llama; and what a rank
holds. The ranks run in ColossalAI's environment; `make bench-parity` prints both tables."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_workers.environments import interpreter, link_own_packages
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.parity_steps import VOCABULARY, Run, context_of, off, train, weights_of, worst_step
from rlcore.api import RunError
from rlcore.testing.training.layout_runs import LAYOUTS

__all__ = ["BOUNDS", "broken", "measure", "memory_table", "parity_table"]

ROOT = Path(__file__).resolve().parents[1]
ONE = LAYOUTS[0]
TWO = ("single/float32", "data 2/float32", "zero 1, data 2/float32", "zero 2, data 2/float32", "tensor 2/float32", "pipeline 2/float32")
TWO_ROUNDED = ("single/bfloat16", "zero 1, data 2/bfloat16", "zero 2, data 2/bfloat16", "tensor 2/bfloat16", "pipeline 2/bfloat16")
FOUR = (
    "data 2 x tensor 2/float32",
    "data 2 x pipeline 2/float32",
    "tensor 2 x pipeline 2/float32",
    "zero 1, data 2 x tensor 2/bfloat16",
    "zero 1, data 2 x pipeline 2/bfloat16",
)
BOUNDS: Mapping[str, Mapping[str, float]] = {
    "float32": {"loss": 5e-5, "grad_norm": 1e-5, "way": 1e-3},
    "bfloat16": {"loss": 0.5, "grad_norm": 0.1, "way": 0.3},
}
"""Relative, of loss and gradient norm at the worst step, and of the weights after five steps, of the way that they went. The rows of
trainer `torch` say what one process loses by that precision: AdamW makes whole steps of gradients whose sign is but rounding."""


def measure(environment: Path, *, everything: bool) -> dict[str, dict[str, float]]:
    """By "layout/dtype", that of trainer `torch` too: differences, and bytes a parameter on rank 0."""
    with TemporaryDirectory(prefix="rlcore-parity-") as name:
        model = tiny_model(f"{name}/model")
        reference = {dtype: one_process(model, dtype) for dtype in ("float64", "float32", "bfloat16")}
        runs = ranks(environment, model, Path(name), [*TWO, *TWO_ROUNDED, *(FOUR if everything else ())])
        start = weights_of_folder(model)
    exact = reference["float64"]
    found = {f"torch, one process/{dtype}": differences(reference[dtype], exact, start) for dtype in BOUNDS}
    return found | {f"{layout}/{dtype}": {**differences(run, exact, start), **run.memory} for (layout, dtype), run in runs.items()}


def one_process(model: str, dtype: str) -> Run:
    """Trainer `torch`."""
    context = context_of(ONE, model, dtype)
    return train(TorchBackend(context, TorchOptions(threads=1)), context)


def ranks(environment: Path, model: str, folder: Path, asked: Sequence[str]) -> dict[tuple[str, str], Run]:
    """RunError, with the end of what they wrote, if they fail."""
    packages, answer = folder / "packages", folder / "answer"
    packages.mkdir()
    link_own_packages(packages)
    python, variables = interpreter(environment, packages)
    command = [python, "-m", "benchmarks.colossal_ranks", model, str(answer), *asked]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"ranks in {environment} failed: {done.stderr[-2000:]}")
    found: dict[tuple[str, str], Run] = pickle.loads(answer.read_bytes())
    return found


def weights_of_folder(model: str) -> dict[str, np.ndarray]:
    """In float64."""
    context = context_of(ONE, model, "float64")
    backend = TorchBackend(context, TorchOptions(threads=1))
    backend.setup(context)
    found = weights_of(backend)
    backend.close()
    return found


def differences(mine: Run, exact: Run, start: Mapping[str, np.ndarray]) -> dict[str, float]:
    """By the names of ``BOUNDS``."""

    mine_way, exact_way = ({name: run.weights[name] - start[name] for name in start} for run in (mine, exact))
    return {"loss": worst_step(mine, exact, "loss"), "grad_norm": worst_step(mine, exact, "grad_norm"), "way": off(mine_way, exact_way)}


def tiny_model(folder: str) -> str:
    """Llama with a vocabulary that nothing divides, tied."""
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True, "initializer_range": 0.2}
    model = AutoModelForCausalLM.from_config(LlamaConfig(**sizes, **heads, pad_token_id=None, bos_token_id=None, eos_token_id=None))
    model.save_pretrained(folder)
    return folder


def broken(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Rows of `colossalai` that are above a bound."""
    bounds = [(row, key, bound) for row in found for key, bound in BOUNDS[row.rpartition("/")[2]].items()]
    return [f"{row}: {key}" for row, key, bound in bounds if not found[row][key] <= bound]


def parity_table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown."""
    lines = ["| layout | precision | loss | gradient norm | weights after 5 steps, of the way |", "|---|---|---|---|---|"]
    for row, values in found.items():
        layout, _, dtype = row.rpartition("/")
        lines.append(f"| {layout} | {dtype} | " + " | ".join(f"{values[key]:.1e}" for key in BOUNDS[dtype]) + " |")
    for dtype, bounds in BOUNDS.items():
        lines.append(f"| *at most* | *{dtype}* | " + " | ".join(f"*{bound:.0e}*" for bound in bounds.values()) + " |")
    return "\n".join(lines) + "\n"


def memory_table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown; bytes a parameter of the whole model, on the first rank."""
    parts = ("weights", "gradients", "masters", "moments")
    lines = ["| layout | precision | " + " | ".join(parts) + " | together |", "|---|---|" + "---:|" * (len(parts) + 1)]
    for row, values in found.items():
        if "weights" in values:
            layout, _, dtype = row.rpartition("/")
            figures = [values[part] for part in parts]
            lines.append(f"| {layout} | {dtype} | " + " | ".join(f"{value:.1f}" for value in [*figures, sum(figures)]) + " |")
    return "\n".join(lines) + "\n"
