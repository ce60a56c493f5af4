"""What both sides do: the shapes, and the folder that holds one of them (a model, prompts, ``work.json``).

This module and ``trl_side`` run in TRL's environment too, so they import nothing of rlcore.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["Work", "clocks", "peak_bytes", "row_lengths", "spent"]


@dataclass(frozen=True, kw_only=True)
class Work:
    """One shape. ``prompts`` x ``group`` rollouts a step, of at most ``new_tokens`` tokens after prompts of ``prompt_tokens`` or fewer.

    ``reward``: "answer" compares with ``gt_answer``, "parity" gives 1 if the number of characters that a response has is even (a model
    that has learned nothing gets it half of the time). ``sigma``: None if rows end as the model says; else each row's length is drawn
    log-normal with this deviation, median ``new_tokens`` / 8, cut at ``new_tokens``.
    """

    name: str
    prompts: int
    group: int
    prompt_tokens: int
    new_tokens: int
    reward: str
    forward_rollouts: int
    """Rollouts of a forward and backward pass; both sides get the same."""
    sigma: float | None = None
    steps: int = 0
    """Optimizer steps that count."""
    warmup: int = 0
    """Those before them."""
    learning_rate: float = 4e-4
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    device: str = "cpu"
    """Of both roles: "cpu" or "cuda", one card."""
    dtype: str = "float32"
    """What both sides compute in, over weights and moments in float32: "float32" or "bfloat16"."""

    def write(self, folder: Path) -> None:
        """As ``work.json``."""
        (folder / "work.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Work:
        """What ``write`` wrote."""
        values = json.loads((folder / "work.json").read_text(encoding="utf-8"))
        return cls(**{**values, "betas": tuple(values["betas"])})


def row_lengths(work: Work, step: int) -> np.ndarray:
    """int64[rows]: the length of every row of a step, the same multiset in each step, in an order of its own."""
    assert work.sigma is not None
    rows = work.prompts * work.group
    normal = np.random.default_rng(0).standard_normal(rows)
    lengths = np.clip(np.round(work.new_tokens / 8 * np.exp(work.sigma * normal)), 1, work.new_tokens).astype(np.int64)
    return np.random.default_rng(1 + step).permutation(lengths)


def clocks(device: str) -> tuple[float, float]:
    """(wall clock, CPU seconds of this process), once the device has done what it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


def peak_bytes(device: str) -> int:
    """The most memory that this process has taken: of tensors on the card, or resident on a CPU."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def spent(marks: Sequence[tuple[float, float]], work: Work) -> dict[str, Any]:
    """From (wall clock, CPU seconds) at the end of each step to medians over the steps that count, each as long as the time between."""
    counted = np.diff(np.array(marks), axis=0)[-work.steps :]
    wall, cpu = np.median(counted, axis=0).tolist()
    return {"seconds": wall, "cpu_seconds": cpu, "steps": len(counted)}
