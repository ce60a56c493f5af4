"""The five steps of `make bench-parity`: batches, settings and what is kept, for any trainer, in any environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from rlcore.api import OptimizerSettings, TrainBatch, TrainingBackend, TrainingContext
from rlcore.testing import make_rollout, make_train_batch
from rlcore.testing.training.layout_runs import RankLayout
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.weights import handed_out

__all__ = ["VOCABULARY", "Run", "context_of", "off", "train", "weights_of", "worst_step"]

STEPS, VOCABULARY = 5, 97


@dataclass(kw_only=True)
class Run:
    """What rank 0 ends with: metrics of the steps, weights after the last, gradients of the first before clipping, bytes a parameter."""

    metrics: list[Mapping[str, float]] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)


def train(backend: TrainingBackend, context: TrainingContext) -> Run:
    """Five steps; in the fourth one place has the whole batch. The backend is set up here, and closed."""
    run = Run()
    with closing(backend):
        backend.setup(context)
        place, size = backend.data_parallel
        for step in range(STEPS):
            batch = batch_of(step)
            owners = np.zeros_like(batch.group) if step == 3 else batch.group % size
            run.metrics.append(backend.update(batch.take(np.flatnonzero(owners == place)), PlainObjective()))
        run.weights = weights_of(backend)
        run.gradients, run.memory = getattr(backend, "seen", {}), getattr(backend, "held", {})
    return run


def weights_of(backend: TrainingBackend) -> dict[str, np.ndarray]:
    """What a trainer hands out, in float64; bfloat16 comes as its bits."""
    weights = {}
    for name, tensor in handed_out(backend).items():
        bits = tensor.data.astype(np.uint32) << 16 if tensor.dtype == "bfloat16" else None
        weights[name] = np.array(tensor.data if bits is None else bits.view(np.float32), np.float64)
    return weights


def batch_of(seed: int) -> TrainBatch:
    """Four prompts with three completions of 1 to 12 tokens, off-policy, so that the loss depends on the weights."""
    draw = np.random.default_rng(seed)
    group = [row // 3 for row in range(12)]
    prompts = [draw.integers(1, VOCABULARY, 4 + prompt).tolist() for prompt in range(4)]
    tokens = [draw.integers(1, VOCABULARY, int(length)).tolist() for length in draw.integers(1, 13, 12)]
    rollouts = [make_rollout(prompts[row // 3], tokens[row], prompt_id=f"p{row // 3}", index=row % 3) for row in range(12)]
    batch = make_train_batch(rollouts, draw.normal(size=12).tolist(), group=group, in_loss=[True] * 12)
    return replace(batch, old_logprobs=np.full_like(batch.rollout_logprobs, -4.0))


def context_of(layout: RankLayout, model: str, dtype: str) -> TrainingContext:
    """Gradients are clipped, weights decay, the learning rate falls."""
    return TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=1e-3, weight_decay=0.1, max_grad_norm=0.05, total_steps=2 * STEPS),
        rollouts_per_forward=4,
        tokens_per_forward=200,
        prompts_per_slice=10,
        dtype=dtype,
        device="cpu",
        world_size=layout.ranks,
        **layout.settings,  # type: ignore[arg-type]
    )


def worst_step(mine: Run, exact: Run, name: str) -> float:
    """The largest relative difference of a metric over the steps."""
    return max(abs(own[name] - due[name]) / abs(due[name]) for own, due in zip(mine.metrics, exact.metrics, strict=True))


def off(mine: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    """Norm of the difference over the norm, of all tensors together."""
    difference = math.hypot(*(float(np.linalg.norm(mine[name] - due)) for name, due in theirs.items()))
    return difference / math.hypot(*(float(np.linalg.norm(due)) for due in theirs.values()))
