"""What the core registers keeps the rules that it asks of strangers."""

from __future__ import annotations

from rlcore.contracts.interfaces import AdvantageEstimator, Loss
from rlcore.learning import ClippedOptions, ClippedSurrogate, GroupMean, GroupNorm
from rlcore.testing import AdvantageSuite, LossSuite


class TestGroupNorm(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return GroupNorm()


class TestGroupMean(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return GroupMean()


class TestClipped(LossSuite):
    def make(self) -> Loss:
        return ClippedSurrogate(ClippedOptions())
