"""The loop over the micro-batches of one optimizer step: log probabilities without gradient, or gradients summed in a fixed order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from rlcore.api import Need, Objective, Segment, TrainBatch
from rlcore.learning import MicroBatch, collate, plan_micro_batches
from rlcore_plugin_torch.microbatch_planning import Cost, plan_packed
from rlcore_plugin_torch.packing import PackedBatch, pack
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.ranks import DeferredRankError

__all__ = ["Clock", "MicrobatchPlanner", "Pace", "accumulate", "alone", "batch_logprobs", "tokens_forwarded", "with_padding_share"]

_POSITIONS, _PADDING = "positions", "padded_positions"
"""Counts of ``accumulate``, which add up over micro-batches and ranks as a share would not."""


@dataclass(frozen=True, kw_only=True)
class MicrobatchPlanner:
    """How a batch is cut into forwards: rollouts and tokens (padding counted) of one, prompts of a slice; ``packed``: into buffers without
    padding, of like ``cost``."""

    rollouts: int
    tokens: int
    prompts: int
    packed: bool = False
    cost: Cost = field(default_factory=Cost)

    def plan(self, batch: TrainBatch, everything: bool = False) -> list[np.ndarray]:
        """Rollout numbers of each forward."""
        bounds = {"rollouts": self.rollouts, "tokens": self.tokens, "prompts": self.prompts}
        if self.packed:
            return plan_packed(batch, **bounds, cost=self.cost, everything=everything)
        return plan_micro_batches(batch, **bounds, everything=everything)

    def collate(self, batch: TrainBatch, rows: np.ndarray, device: torch.device) -> MicroBatch:
        """The tensors of one forward."""
        return (pack if self.packed else collate)(batch, rows, device=device)

    def cost_of(self, batch: TrainBatch, rows: np.ndarray) -> int:
        """What forward and backward over these rollouts of one group cost."""
        return self.cost.packed(batch, rows) if self.packed else self.cost.padded(batch, rows)


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
def batch_logprobs(policy: CausalPolicy, batch: TrainBatch, cut: MicrobatchPlanner, pace: Pace = alone) -> np.ndarray:
    """float32[N]: log probability of every policy token, those outside the loss too."""
    values = np.zeros(int(batch.offsets[-1]), np.float32)
    for rows in pace(lambda: cut.plan(batch, everything=True)):
        if rows is None:
            policy.idle()
            continue
        micro = cut.collate(batch, rows, policy.device)
        values[micro.index] = policy.logprobs(micro)[0].float().cpu().numpy()
    return values


def accumulate(
    policy: CausalPolicy, batch: TrainBatch, objective: Objective, cut: MicrobatchPlanner, clock: Clock, pace: Pace = alone
) -> dict[str, float]:
    """Add the gradient of the step's loss to the parameters' ``grad``; the metrics, summed over micro-batches, and the counts
    that ``with_padding_share`` makes one metric of."""
    totals: dict[str, torch.Tensor] = {}
    failure: Exception | None = None
    for rows in pace(lambda: cut.plan(batch)):
        with clock.span("forward"):
            if rows is None:
                loss = policy.idle()
            else:
                micro = cut.collate(batch, rows, policy.device)
                logprobs, entropy = policy.logprobs(micro, entropy=Need.ENTROPY in objective.needs)
                loss = logprobs.sum() * 0
                try:
                    if failure is None:
                        loss, metrics = objective(logprobs, micro.loss_batch(logprobs, entropy))
                        for name, value in {**metrics, **_positions(micro)}.items():
                            totals[name] = totals.get(name, 0.0) + value.detach().double()
                except Exception as error:
                    if pace is alone:
                        raise
                    failure = error  # other ranks wait for this one's forwards and backwards, tensor-parallel ones for those of this shape
        with clock.span("backward"):
            loss.backward()
    if failure is not None:
        raise DeferredRankError from failure
    return {name: float(value) for name, value in totals.items()}


def _positions(micro: MicroBatch) -> dict[str, torch.Tensor]:
    """Positions that go through the linear layers, and how many of them are padding."""
    total = micro.input_ids.numel()
    real = total if isinstance(micro, PackedBatch) else sum(len(part.context_ids) + len(part.token_ids) for part in _segments(micro))
    return {_POSITIONS: torch.tensor(total), _PADDING: torch.tensor(total - real)}


def _segments(micro: MicroBatch) -> list[Segment]:
    return [segment for rollout in micro.share.rollouts for segment in rollout.segments]


def with_padding_share(totals: Mapping[str, float]) -> dict[str, float]:
    """The metrics of an update from those of ``accumulate``, added up over the ranks: ``padding_share`` in place of its two counts, absent
    if there was no forward."""
    metrics = dict(totals)
    positions, padding = metrics.pop(_POSITIONS, 0.0), metrics.pop(_PADDING, 0.0)
    return {**metrics, "padding_share": padding / positions} if positions else metrics


def tokens_forwarded(totals: Mapping[str, float]) -> float:
    """Positions of an update that went through the linear layers and are no padding, from the metrics of ``accumulate``."""
    return totals.get(_POSITIONS, 0.0) - totals.get(_PADDING, 0.0)
