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

__all__ = [
    "Clock",
    "MicrobatchPlanner",
    "Pace",
    "accumulate",
    "alone",
    "batch_logprobs",
    "batch_scores",
    "tokens_forwarded",
    "with_padding_share",
]

_POSITIONS, _PADDING = "positions", "padded_positions"
"""Counts of ``accumulate``, which add up over micro-batches and ranks; a share would not."""


@dataclass(frozen=True, kw_only=True)
class MicrobatchPlanner:
    """The bounds for cutting a batch into forwards: ``rollouts`` and ``tokens`` (including padding) of a forward, ``prompts`` of a slice.

    ``packed``: forwards are buffers without padding, of similar ``cost``.
    """

    rollouts: int
    tokens: int
    prompts: int
    packed: bool = False
    cost: Cost = field(default_factory=Cost)

    def plan(self, batch: TrainBatch, everything: bool = False) -> list[np.ndarray]:
        """Return the rollout numbers of each forward."""
        bounds = {"rollouts": self.rollouts, "tokens": self.tokens, "prompts": self.prompts}
        if self.packed:
            return plan_packed(batch, **bounds, cost=self.cost, everything=everything)
        return plan_micro_batches(batch, **bounds, everything=everything)

    def collate(self, batch: TrainBatch, rows: np.ndarray, device: torch.device) -> MicroBatch:
        """Return the tensors of one forward."""
        return (pack if self.packed else collate)(batch, rows, device=device)

    def cost_of(self, batch: TrainBatch, rows: np.ndarray) -> int:
        """Return the cost of forward and backward over these rollouts of one group."""
        return self.cost.packed(batch, rows) if self.packed else self.cost.padded(batch, rows)


@dataclass
class Clock:
    """Seconds by part. ``settle`` waits for the device, so that work counts in the part that requested it."""

    settle: Callable[[], None] = lambda: None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def span(self, part: str) -> Iterator[None]:
        """Add the time of the body to ``part``."""
        start = time.perf_counter()
        yield
        self.settle()
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start


def alone(plan: Callable[[], list[np.ndarray]]) -> list[np.ndarray | None]:
    """Return the forwards of a rank that holds the whole model: those of its own share."""
    return [*plan()]


Pace = Callable[[Callable[[], list[np.ndarray]]], list[np.ndarray | None]]
"""Maps the plan of a share to the forwards of a rank. None is an empty forward, made because another rank makes one."""


def batch_logprobs(policy: CausalPolicy, batch: TrainBatch, cut: MicrobatchPlanner, pace: Pace = alone) -> np.ndarray:
    """Return float32[N]: the log probability of every policy token, including those outside the loss."""
    return batch_scores(policy, batch, cut, pace, entropy=False)[0]


@torch.no_grad()
def batch_scores(
    policy: CausalPolicy, batch: TrainBatch, cut: MicrobatchPlanner, pace: Pace = alone, *, entropy: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return float32[N] twice: the log probabilities of the same tokens, and the entropies (0 unless ``entropy``)."""
    values, entropies = np.zeros((2, int(batch.offsets[-1])), np.float32)
    for rows in pace(lambda: cut.plan(batch, everything=True)):
        if rows is None:
            policy.idle()
            continue
        micro = cut.collate(batch, rows, policy.device)
        found, spread = policy.logprobs(micro, entropy=entropy)
        values[micro.index] = found.float().cpu().numpy()
        if spread is not None:
            entropies[micro.index] = spread.float().cpu().numpy()
    return values, entropies


def accumulate(
    policy: CausalPolicy, batch: TrainBatch, objective: Objective, cut: MicrobatchPlanner, clock: Clock, pace: Pace = alone
) -> dict[str, float]:
    """Add the gradient of the step's loss to the parameters' ``grad``.

    Returns the metrics, summed over micro-batches, and the counts that ``with_padding_share`` turns into one metric.
    """
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
                    # other ranks wait for the forwards and backwards of this one; tensor-parallel ranks need them in the same shapes
                    failure = error
        with clock.span("backward"):
            loss.backward()
    if failure is not None:
        raise DeferredRankError from failure
    return {name: float(value) for name, value in totals.items()}


def _positions(micro: MicroBatch) -> dict[str, torch.Tensor]:
    """Return the number of positions that go through the linear layers, and how many of them are padding."""
    total = micro.input_ids.numel()
    real = total if isinstance(micro, PackedBatch) else sum(len(part.context_ids) + len(part.token_ids) for part in _segments(micro))
    return {_POSITIONS: torch.tensor(total), _PADDING: torch.tensor(total - real)}


def _segments(micro: MicroBatch) -> list[Segment]:
    return [segment for rollout in micro.share.rollouts for segment in rollout.segments]


def with_padding_share(totals: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an update from those of ``accumulate``, summed over the ranks.

    ``padding_share`` replaces its two counts; it is absent if there was no forward.
    """
    metrics = dict(totals)
    positions, padding = metrics.pop(_POSITIONS, 0.0), metrics.pop(_PADDING, 0.0)
    return {**metrics, "padding_share": padding / positions} if positions else metrics


def tokens_forwarded(totals: Mapping[str, float]) -> float:
    """Return the positions of an update that went through the linear layers and are not padding, from the metrics of ``accumulate``."""
    return totals.get(_POSITIONS, 0.0) - totals.get(_PADDING, 0.0)
