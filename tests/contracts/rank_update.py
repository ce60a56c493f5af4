"""What one trainer rank does in the tests of rank invariance: updates of a real tiny Qwen2 through the consumer, in its own process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.policy import CausalPolicy

from rlcore.api import FinishReason, Group, OptimizerSettings, Rollout, Score, Segment, TrainingContext
from rlcore.contracts.snapshots import BUCKET_BYTES
from rlcore.learning import BatchSettings, ClippedSurrogate, PolicyObjective
from rlcore.learning.advantages import GroupNorm
from rlcore.roles.algorithm import Algorithm
from rlcore.roles.consumer import Consumer
from rlcore.schedule.accounting import TimeAccount
from rlcore.testing.weights import handed_out
from rlcore.weights.memory import MemoryPublisher

VOCABULARY = 100
GROUPS = (5, 4, 1, 6, 5)
"""Groups of each update; with one of them all ranks but one have nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a rank ends with: gradients (by tensor, before clipping) of every optimizer step, metrics of every update, weights after the
    fifth step and at the end."""

    gradients: list[dict[str, np.ndarray]]
    metrics: list[Mapping[str, float]]
    weights: dict[str, np.ndarray]
    end: dict[str, np.ndarray]
    parts: set[str]


class ExactBackend(TorchBackend):
    """Float64 throughout: the norm of transformers rounds to float32, so torch's takes its place (same function)."""

    def _load(self, path: str) -> CausalPolicy:
        policy = super()._load(path)
        for name, module in list(policy.model.named_modules()):
            if type(module).__name__ == "Qwen2RMSNorm":
                exact = torch.nn.RMSNorm(len(module.weight), eps=module.variance_epsilon, dtype=torch.float64)
                exact.weight.data.copy_(module.weight.data)
                policy.model.set_submodule(name, exact)
        return policy


def train(rank: int, size: int, rendezvous: str, model: str) -> Trained:
    """Five updates of one step with a reference model, then one of four steps with old log probabilities."""
    context = TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=1e-3, total_steps=20, max_grad_norm=0.5),
        rollouts_per_forward=4,
        tokens_per_forward=200,
        prompts_per_slice=3,
        needs=algorithm().needs,
        dtype="float64",
        device="cpu",
        rank=rank,
        world_size=size,
        rendezvous=rendezvous,
    )
    backend = ExactBackend(context, TorchOptions(threads=1, ranks_deadline=100.0))
    try:
        backend.setup(context)
        gradients = watched(backend)
        metrics, parts = [], set()
        for version, count in enumerate(GROUPS):
            consumer = Consumer(backend, algorithm(), TimeAccount())
            metrics.append(consumer.update(make_groups(version, count), {1} if count > 4 else (), version))
            parts |= set(consumer.timings)
        weights = weights_of(consumer, rank)
        consumer = Consumer(backend, replace(algorithm(), updates_per_batch=2, epochs_per_batch=2), TimeAccount())
        metrics.append(consumer.update(make_groups(9, 5), (), 5))
        return Trained(gradients=gradients, metrics=metrics, weights=weights, end=weights_of(consumer, rank), parts=parts)
    finally:
        backend.close()


def algorithm() -> Algorithm:
    loss = ClippedSurrogate()
    return Algorithm(
        estimator_name="group_norm",
        estimator=GroupNorm(),
        loss_name="clipped",
        loss=loss,
        objective=PolicyObjective(loss=loss, kl_coeff=0.05, entropy_coeff=0.01),
        batch=BatchSettings(max_new_tokens=16),
        seed=3,
    )


def watched(backend: TorchBackend) -> list[dict[str, np.ndarray]]:
    """The list that every further step's gradients go to, as they stand before clipping."""
    seen: list[dict[str, np.ndarray]] = []
    step = backend.optimizer.step

    def recorded() -> dict[str, float]:
        named = backend.policy.model.named_parameters()
        seen.append({name: item.grad.numpy().copy() for name, item in named if item.grad is not None})
        return step()

    backend.optimizer.step = recorded  # type: ignore[method-assign]
    return seen


def weights_of(consumer: Consumer, rank: int) -> dict[str, np.ndarray]:
    """This rank's own, after rank 0 has published and the others have attended."""
    consumer.publish(MemoryPublisher(BUCKET_BYTES) if rank == 0 else None, 1, np.array([3, 5, 7], np.int32), 1e-3)
    return {name: tensor.data for name, tensor in handed_out(consumer._backend).items()}


def make_groups(seed: int, count: int) -> list[Group]:
    rng = np.random.default_rng(seed)
    return [make_group(rng, number) for number in range(count)]


def make_group(rng: np.random.Generator, number: int) -> Group:
    size, context = int(rng.integers(3, 6)), rng.integers(0, VOCABULARY, int(rng.integers(3, 12)))
    rollouts = tuple(make_rollout(rng, number, index, context) for index in range(size))
    scores = tuple(Score(value=float(index % 2), in_loss=(number, index) != (0, 1)) for index in range(size))
    return Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=rollouts, scores=scores)


def make_rollout(rng: np.random.Generator, number: int, index: int, context: np.ndarray) -> Rollout:
    length = int(rng.integers(1, 13))
    arrays: dict[str, Any] = {"logprobs": np.full(length, -4.0), "versions": np.zeros(length), "policy_mask": rng.random(length) < 0.9}
    segment = Segment(context_ids=context, token_ids=rng.integers(0, VOCABULARY, length), **arrays)
    temperature = 0.8 if number == 2 else 1.0
    return Rollout(prompt_id=f"p{number}", index=index, segments=(segment,), text="", finish=FinishReason.STOP, temperature=temperature)
