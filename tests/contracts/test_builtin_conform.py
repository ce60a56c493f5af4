"""What the core registers keeps the rules that it asks of strangers."""

from __future__ import annotations

from rlcore.contracts.interfaces import AdvantageEstimator, Loss
from rlcore.contracts.loss_wrappers import Aggregation, Correction, KlEstimator
from rlcore.contracts.sampler import Sampler, SamplerContext
from rlcore.contracts.training_settings import LearningRateSchedule
from rlcore.learning import ClippedOptions, ClippedSurrogate
from rlcore.learning.adamw import AdamW
from rlcore.learning.advantages import GroupMean, GroupNorm
from rlcore.learning.aggregation import ConstantLength, SampleLevel, TokenLevel
from rlcore.learning.correction import Decoupled, Masked, SequenceMasked, SequenceTruncated, Truncated
from rlcore.learning.kl import K1, K2, K3, AbsoluteKl
from rlcore.learning.lr_schedule import Constant, Cosine, InverseSquareRoot, Linear, WarmupStableDecay, WarmupStableDecayOptions
from rlcore.schedule.prompt_order import Sequential, Shuffled, Weighted
from rlcore.testing import (
    AdvantageSuite,
    AggregationSuite,
    CorrectionSuite,
    KlSuite,
    LearningRateScheduleSuite,
    LossSuite,
    OptimizerSuite,
    SamplerSuite,
)


class TestGroupNorm(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return GroupNorm()


class TestGroupMean(AdvantageSuite):
    def make(self) -> AdvantageEstimator:
        return GroupMean()


class TestClipped(LossSuite):
    def make(self) -> Loss:
        return ClippedSurrogate(ClippedOptions())


class TestTokenLevel(AggregationSuite):
    def make(self) -> Aggregation:
        return TokenLevel()


class TestSampleLevel(AggregationSuite):
    def make(self) -> Aggregation:
        return SampleLevel()


class TestConstantLength(AggregationSuite):
    sums_to_one = False

    def make(self) -> Aggregation:
        return ConstantLength()


class TestK1(KlSuite):
    def make(self) -> KlEstimator:
        return K1()


class TestK2(KlSuite):
    def make(self) -> KlEstimator:
        return K2()


class TestK3(KlSuite):
    gradient = "reference"

    def make(self) -> KlEstimator:
        return K3()


class TestAbsoluteKl(KlSuite):
    gradient = ""

    def make(self) -> KlEstimator:
        return AbsoluteKl()


class TestDecoupled(CorrectionSuite):
    def make(self, bounds: tuple[float, float]) -> Correction:
        return Decoupled(bounds)


class TestTruncated(CorrectionSuite):
    def make(self, bounds: tuple[float, float]) -> Correction:
        return Truncated(bounds)


class TestMasked(CorrectionSuite):
    def make(self, bounds: tuple[float, float]) -> Correction:
        return Masked(bounds)


class TestSequenceTruncated(CorrectionSuite):
    def make(self, bounds: tuple[float, float]) -> Correction:
        return SequenceTruncated(bounds)


class TestSequenceMasked(CorrectionSuite):
    def make(self, bounds: tuple[float, float]) -> Correction:
        return SequenceMasked(bounds)


class TestAdamW(OptimizerSuite):
    def make(self) -> AdamW:
        return AdamW()


class TestConstant(LearningRateScheduleSuite):
    def make(self) -> LearningRateSchedule:
        return Constant()


class TestLinear(LearningRateScheduleSuite):
    def make(self) -> LearningRateSchedule:
        return Linear()


class TestCosine(LearningRateScheduleSuite):
    def make(self) -> LearningRateSchedule:
        return Cosine()


class TestWarmupStableDecay(LearningRateScheduleSuite):
    def make(self) -> LearningRateSchedule:
        return WarmupStableDecay()


class TestInverseSquareRoot(LearningRateScheduleSuite):
    def make(self) -> LearningRateSchedule:
        return InverseSquareRoot()


class TestDecayAllTheWay(LearningRateScheduleSuite):
    def make(self) -> LearningRateSchedule:
        return WarmupStableDecay(WarmupStableDecayOptions(decay_share=1.0))


class TestNoDecay(LearningRateScheduleSuite):
    def make(self) -> LearningRateSchedule:
        return WarmupStableDecay(WarmupStableDecayOptions(decay_share=0.0))


class TestSequential(SamplerSuite):
    def make(self, context: SamplerContext) -> Sampler:
        return Sequential(context)


class TestSequentialWithoutEnd(TestSequential):
    def context(self) -> SamplerContext:
        return SamplerContext(items=None)


class TestShuffled(SamplerSuite):
    def make(self, context: SamplerContext) -> Sampler:
        return Shuffled(context)


class TestWeighted(SamplerSuite):
    def make(self, context: SamplerContext) -> Sampler:
        return Weighted(context)

    def context(self) -> SamplerContext:
        return SamplerContext(items=3, ids=["a", "b", "c"], weights=(1.0, 2.0, 0.5))
