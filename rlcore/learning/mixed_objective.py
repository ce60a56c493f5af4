"""The objective of a run with several sources: each source's own objective on its own rows, added up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from rlcore.contracts.batches import LossBatch, Normalisers, full_precision
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import Need, Objective

if TYPE_CHECKING:
    import torch

__all__ = ["MixedObjective", "extra_of", "in_source"]

_SUMS = ("loss", "policy_loss")
"""Metrics that add up as the loss does. ``skipped_rollouts`` is a count, and all others are means over tokens."""


class MixedObjective:
    """The sum of the objectives of the sources. Each receives its own rows, its own ``extras`` and its own normalisers.

    Metrics are those of all tokens, and those of each source as ``source/NAME/<metric>``. There the losses are the source's own, without
    its share of the step. A metric that a source does not report counts as 0 for its tokens.
    """

    def __init__(self, names: Sequence[str], objectives: Sequence[Objective]) -> None:
        self._named = tuple(zip(names, objectives, strict=True))
        self.needs: frozenset[Need] = frozenset().union(*(objective.needs for objective in objectives))

    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return [n] -> scalar, metrics. Raise RunError if the batch does not say the source of its tokens."""
        if batch.source is None or batch.normalisers is None or not batch.normalisers.sources:
            raise RunError(
                "the run has several sources, and a micro-batch does not say the source of its tokens: a training backend that builds its "
                "own LossBatch must set source and normalisers, as MicroBatch.loss_batch does"
            )
        total = full_precision(logprobs)[:0].sum()
        metrics: dict[str, torch.Tensor] = {}
        for number in sorted(set(batch.source.tolist())):
            (name, objective), own = self._named[number], batch.normalisers.sources[number]
            mine = batch.source == number
            with in_source(name):
                value, figures = objective(logprobs[mine], _part(batch, mine, number, own))
            total = total + value
            for figure, found in figures.items():
                part, alone = own.tokens / max(batch.normalisers.tokens, 1), 1.0
                if figure in _SUMS:
                    part, alone = 1.0, 1.0 / own.share
                elif figure == "skipped_rollouts":
                    part = 1.0
                metrics[figure] = metrics.get(figure, 0.0) + part * found
                metrics[f"source/{name}/{figure}"] = alone * found
        return total, metrics


def extra_of(number: int, name: str) -> str:
    """Return the name under which a batch holds an array that the loss of a source prepared."""
    return f"{number}/{name}"


@contextmanager
def in_source(name: str) -> Iterator[None]:
    """Let an error name the source."""
    try:
        yield
    except RunError as error:
        raise RunError(f"source {name!r}: {error}") from error


def _part(batch: LossBatch, mine: torch.Tensor, number: int, normalisers: Normalisers) -> LossBatch:
    """Return the tokens where ``mine``, bool[n], is True as a batch of their own."""
    kept = batch.row.new_zeros(batch.rows).bool().index_fill(0, batch.row[mine], True)
    row = (kept.cumsum(0) - 1)[batch.row[mine]]
    held = {item.name: value for item in fields(batch) if hasattr(value := getattr(batch, item.name), "device")}
    tokens = {name: value[mine] for name, value in held.items() if name != "lengths"}
    prefix = extra_of(number, "")
    extras = {name.removeprefix(prefix): value[mine] for name, value in batch.extras.items() if name.startswith(prefix)}
    own = {**tokens, "row": row, "lengths": batch.lengths[kept], "extras": extras, "source": None}
    return replace(batch, **own, normalisers=normalisers)
