"""Trainers that build the batch of the loss themselves, and lose whose tokens it holds."""

from __future__ import annotations

from dataclasses import replace

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import Objective
from rlcore.testing.training.fake_pipeline import FakePipeline, MicroInFlight

__all__ = ["ForgetsTheSource", "KeepsNoNormalisers", "TurnsTheSources"]


class ForgetsTheSource(FakePipeline):
    """It was written for runs with one source."""

    def _backward(self, flight: MicroInFlight, objective: Objective) -> dict[str, float]:
        return super()._backward(replace(flight, micro=replace(flight.micro, share=self.lost(flight.micro.share))), objective)

    def lost(self, share: TrainBatch) -> TrainBatch:
        return replace(share, source=None)


class TurnsTheSources(ForgetsTheSource):
    """The sources of another order of the rollouts."""

    def lost(self, share: TrainBatch) -> TrainBatch:
        assert share.source is not None
        return replace(share, source=share.source[::-1].copy())


class KeepsNoNormalisers(ForgetsTheSource):
    """Only the counts of the whole step."""

    def lost(self, share: TrainBatch) -> TrainBatch:
        return replace(share, normalisers=replace(share.normalisers, sources={}))
