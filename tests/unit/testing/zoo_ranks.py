"""Trainers of several ranks with one planted bug each. Nothing here imports torch: the ranks are processes, and start in half a second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import ModelRole, Objective
from rlcore.contracts.snapshots import Tensor
from rlcore.testing import FakePolicy, FakeTraining
from rlcore.testing.weights import HostSource

__all__ = ["RANK_ZOO", "HandsOutOnRankZero"]

Sums = tuple[float, dict[str, np.ndarray]]


class AveragesOverRanks(FakeTraining):
    """The mean of the ranks' gradients, as DistributedDataParallel takes it."""

    def _summed(self, loss: float, gradient: Mapping[str, np.ndarray]) -> Sums:
        loss, total = super()._summed(loss, gradient)
        return loss, {name: array / self.ranks.size for name, array in total.items()}


class ClipsEachShare(FakeTraining):
    """Every rank clips its own gradient before the sum; the norm that it reports is right."""

    def _summed(self, loss: float, gradient: Mapping[str, np.ndarray]) -> Sums:
        loss, whole = super()._summed(loss, gradient)
        limit = self.context.optimizer.max_grad_norm
        norm = float(np.sqrt(sum((array**2).sum() for array in gradient.values())))
        clipped = {name: array * min(1.0, limit / norm) if norm else array for name, array in gradient.items()}
        _, total = super()._summed(loss, clipped)
        reported, own = (np.sqrt(sum((array**2).sum() for array in arrays.values())) for arrays in (whole, total))
        return loss, {name: array * (reported / own if own else 1.0) for name, array in total.items()}


class KeepsItsShare(FakeTraining):
    """Every rank steps on the gradient of its own share, and reports that of the whole."""

    def _summed(self, loss: float, gradient: Mapping[str, np.ndarray]) -> Sums:
        loss, total = super()._summed(loss, gradient)
        norm, own = (np.sqrt(sum((array**2).sum() for array in arrays.values())) for arrays in (total, gradient))
        return loss, {name: array * (norm / own if own else 1.0) for name, array in (gradient if own else total).items()}


class EmptyShareStepsOnNothing(FakeTraining):
    """A rank whose share is empty takes part in the sum, and does not look at what comes of it."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        held = self.policy
        metrics = super().update(batch, objective)
        if not len(batch):
            self.policy = held
        return metrics


class ReportsItsShare(FakeTraining):
    """The loss of a rank's own share for that of the step."""

    def _summed(self, loss: float, gradient: Mapping[str, np.ndarray]) -> Sums:
        return loss, super()._summed(loss, gradient)[1]


class DriftsElsewhere(FakeTraining):
    """With several ranks, every step also moves weights that neither figures nor the probe show, alike on all ranks."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        held = self.policy
        metrics = super().update(batch, objective)
        if self.ranks.size > 1 and self.policy is not held and not metrics.get("skipped_steps"):
            pair, size = np.array(self.policy.pair), self.policy.vocabulary
            pair[7 * size : 8 * size] += 1.0
            self.policy = FakePolicy(self.policy.last, pair)
        return metrics


class HandsOutAnother(FakeTraining):
    """Rank 1 trains alike, and hands out what it does not have."""

    def weight_source(self) -> HostSource:
        moved = np.float32(1e-6 * self.ranks.rank)
        return HostSource({name: replace(tensor, data=tensor.data + moved) for name, tensor in self.policy.tensors()})


def ungathered(trainer: FakeTraining) -> FakePolicy:
    """With several ranks, half of the first tensor, which another rank trains, is as it was at the start."""
    last, half = np.array(trainer.policy.last), trainer.policy.vocabulary // 2
    last[half:] = FakePolicy.load(trainer.context.model).last[half:]
    return FakePolicy(last, trainer.policy.pair) if trainer.ranks.size > 1 else trainer.policy


class LeavesHeadUngathered(FakeTraining):
    """Hands out what is not gathered, and saves what is."""

    def weight_source(self) -> HostSource:
        return HostSource(dict(ungathered(self).tensors()))


class SavesHeadUngathered(FakeTraining):
    """Saves what is not gathered, and hands out what is."""

    def save_model(self, folder: Path, dtype: str | None = None) -> Future[None] | None:
        return self._written(partial(ungathered(self).save, folder, dtype))


class HandsOutOnRankZero(FakeTraining):
    """No bug: weights are gathered to rank 0, and the others have none to hand out."""

    def weight_source(self) -> HostSource:
        gather, rank = self.gather, self.ranks.rank

        class Gathered(HostSource):
            def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
                for bucket in super().buckets(max_bytes):
                    gather(np.zeros(1))
                    yield bucket if rank == 0 else {}

        return Gathered(super().weight_source().tensors)


class GathersAllAtOnce(FakeTraining):
    """With several ranks the whole model comes in one bucket."""

    def weight_source(self) -> HostSource:
        class Whole(HostSource):
            def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
                yield self.tensors

        source = super().weight_source()
        return source if self.ranks.size == 1 else Whole(source.tensors)


class ReturnsBeforeItIsSaved(FakeTraining):
    """Rank 0 writes, and the others do not wait for it."""

    def save_model(self, folder: Path) -> None:
        if self.ranks.rank == 0:
            time.sleep(0.3)
            self.policy.save(folder)


class GathersItsOwnSizes(FakeTraining):
    """Pads and cuts every array to its own length, as a plain all-gather does."""

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        return [np.resize(array, values.shape) for array in super().gather(values)]


class ScoresOldWeights(FakeTraining):
    """The rank that is not first scores with other weights."""

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        return super().logprobs(batch, which) - np.float32(0.01 * self.ranks.rank)


class SkipsAlone(FakeTraining):
    """A rank that finds no finite gradient in its share leaves it out of the sum; the others step."""

    def _summed(self, loss: float, gradient: Mapping[str, np.ndarray]) -> Sums:
        finite = all(np.isfinite(array).all() for array in gradient.values())
        return super()._summed(loss, gradient if finite else {name: np.zeros_like(array) for name, array in gradient.items()})


class MovesTheReference(FakeTraining):
    """With several ranks the reference is what the first one trains."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        self.reference = self.policy if self.ranks.size > 1 else self.reference
        return metrics


class SyncsRankZero(FakeTraining):
    """The reference of the first rank alone moves."""

    def sync_reference(self, share: float) -> None:
        if self.ranks.rank == 0:
            super().sync_reference(share)


class RestoresRankZero(FakeTraining):
    """Only rank 0 reads the optimizer's state."""

    def load(self, folder: Path) -> None:
        if self.ranks.rank == 0:
            super().load(folder)


class ReadsItsOwnLayoutAlone(FakeTraining):
    """Moments that other ranks saved are taken for zero."""

    def save(self, folder: Path) -> None:
        (folder / "ranks").write_text(str(self.ranks.size))
        super().save(folder)

    def load(self, folder: Path) -> None:
        super().load(folder)
        if (folder / "ranks").read_text() != str(self.ranks.size):
            self.optimizer.first = {name: np.zeros_like(array) for name, array in self.optimizer.first.items()}


RANK_ZOO: dict[type[FakeTraining], tuple[str, str]] = {
    AveragesOverRanks: ("report_the_whole_step", r"grad_norm is .*, 0\.5 times it: shares add up"),
    ReportsItsShare: ("report_the_whole_step", "loss is .* of the other"),
    ClipsEachShare: ("train_like_one_process", "weights are off by"),
    KeepsItsShare: ("train_like_one_process", "of rank 1 is not that of rank 0"),
    EmptyShareStepsOnNothing: ("train_like_one_process", "of rank 1 is not that of rank 0"),
    DriftsElsewhere: ("train_like_one_process", "off by .* of what the steps moved.* 'pair.weight' the most"),
    LeavesHeadUngathered: ("train_like_one_process", "'last.weight' the most"),
    HandsOutAnother: ("hand_out_the_same_weights", "rank 1 hands out another 'last.weight', off by 1e-06"),
    GathersAllAtOnce: ("bound_their_buckets", r"bytes in a bucket of 1\b"),
    SavesHeadUngathered: ("save_whole", "the saved model has another 'last.weight'"),
    ReturnsBeforeItIsSaved: ("save_whole", "saving returned on rank 1"),
    GathersItsOwnSizes: ("have_places", "gathered arrays of lengths"),
    ScoresOldWeights: ("score_like_one_process", "policy on rank 1 are off by 0.01 nats"),
    SkipsAlone: ("skip_alike", "a NaN changed tensor"),
    MovesTheReference: ("keep_the_reference", "has moved by"),
    SyncsRankZero: ("sync_the_reference", "reference on rank 1 is 0.*nats away"),
    RestoresRankZero: ("continue_exactly", "gave another .* on rank 1"),
    ReadsItsOwnLayoutAlone: ("load_elsewhere", "resumed in one process"),
}
"""Bug -> the rule that is there for it, and what it says."""
