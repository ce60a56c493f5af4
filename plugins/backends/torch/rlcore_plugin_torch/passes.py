"""The loop over the micro-batches of one optimizer step: log probabilities without gradient, or gradients summed in a fixed order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from rlcore.api import Need, Objective, TrainBatch
from rlcore.learning import collate, plan_micro_batches
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.ranks import InStepError

__all__ = ["Clock", "Cut", "Pace", "accumulate", "alone", "batch_logprobs"]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How a batch is cut into forwards: rollouts and padded tokens of one, prompts of a slice, widest shared row (0: none)."""

    rollouts: int
    tokens: int
    prompts: int
    share_prompts: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "share_prompts", min(self.share_prompts, self.tokens))

    def plan(self, batch: TrainBatch, everything: bool = False) -> list[np.ndarray]:
        """Rollout numbers of each forward."""
        return plan_micro_batches(
            batch,
            rollouts=self.rollouts,
            tokens=self.tokens,
            prompts=self.prompts,
            share_prompts=self.share_prompts,
            everything=everything,
        )


@dataclass
class Clock:
    """Seconds by part; ``settle`` waits for the device, so that work is booked where it was asked for."""

    settle: Callable[[], None] = lambda: None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def span(self, part: str) -> Iterator[None]:
        """Book the time of the body under ``part``."""
        start = time.perf_counter()
        yield
        self.settle()
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start


def alone(plan: Callable[[], list[np.ndarray]]) -> list[np.ndarray | None]:
    """The forwards of a rank that holds the whole model: those that its share needs."""
    return [*plan()]


Pace = Callable[[Callable[[], list[np.ndarray]]], list[np.ndarray | None]]
"""From a plan of a share to what the rank does: None is a forward of nothing, made because another rank makes one."""


@torch.no_grad()
def batch_logprobs(policy: CausalPolicy, batch: TrainBatch, cut: Cut, pace: Pace = alone) -> np.ndarray:
    """float32[N]: log probability of every policy token, those outside the loss too."""
    values = np.zeros(int(batch.offsets[-1]), np.float32)
    for rows in pace(lambda: cut.plan(batch, everything=True)):
        if rows is None:
            policy.idle()
            continue
        micro = collate(batch, rows, share_prompts=cut.share_prompts, device=policy.device)
        values[micro.index] = policy.logprobs(micro)[0].float().cpu().numpy()
    return values


def accumulate(
    policy: CausalPolicy, batch: TrainBatch, objective: Objective, cut: Cut, clock: Clock, pace: Pace = alone
) -> dict[str, float]:
    """Add the gradient of the step's loss to the parameters' ``grad``; the metrics, summed over micro-batches."""
    totals: dict[str, torch.Tensor] = {}
    failure: Exception | None = None
    for rows in pace(lambda: cut.plan(batch)):
        with clock.span("forward"):
            if rows is None:
                loss = policy.idle()
            else:
                micro = collate(batch, rows, share_prompts=cut.share_prompts, device=policy.device)
                logprobs, entropy = policy.logprobs(micro, entropy=Need.ENTROPY in objective.needs)
                loss = logprobs.sum() * 0
                try:
                    if failure is None:
                        loss, metrics = objective(logprobs, micro.loss_batch(logprobs, entropy))
                        for name, value in metrics.items():
                            totals[name] = totals.get(name, 0.0) + value.detach().double()
                except Exception as error:
                    if pace is alone:
                        raise
                    failure = error  # other ranks wait for this one's forwards and backwards, tensor-parallel ones for those of this shape
        with clock.span("backward"):
            loss.backward()
    if failure is not None:
        raise InStepError from failure
    return {name: float(value) for name, value in totals.items()}
