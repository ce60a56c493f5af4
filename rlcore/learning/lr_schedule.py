"""The learning rate of each optimizer step, and the schedules that it follows after the warm-up."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.errors import RunError
from rlcore.contracts.training_settings import LearningRateSchedule, OptimizerSettings
from rlcore.registry.error_context import error_context

__all__ = [
    "Constant",
    "Cosine",
    "InverseSquareRoot",
    "InverseSquareRootOptions",
    "Linear",
    "WarmupStableDecay",
    "WarmupStableDecayOptions",
    "learning_rate",
]


class Constant(LearningRateSchedule):
    """The peak, to the end."""

    def share(self, step: int, steps: int) -> float:
        return 1.0


class Linear(LearningRateSchedule):
    """A straight line from the peak down to the end of the run."""

    def share(self, step: int, steps: int) -> float:
        return 1.0 - min(step / steps, 1.0)


class Cosine(LearningRateSchedule):
    """Half a cosine from the peak down to the end of the run (SGDR, arXiv 1608.03983, equation 5, without restarts)."""

    def share(self, step: int, steps: int) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * min(step / steps, 1.0)))


class WarmupStableDecayOptions(BaseModel):
    """Options of ``wsd``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    decay_share: float = Field(default=0.1, ge=0.0, le=1.0, description="share of the steps after the warm-up in which the rate falls")


class WarmupStableDecay(LearningRateSchedule):
    """The peak, then a straight line down in the last part of the run (MiniCPM, arXiv 2404.06395, section 4, with a linear decay)."""

    def __init__(self, options: WarmupStableDecayOptions | None = None) -> None:
        self._share = (options or WarmupStableDecayOptions()).decay_share

    def share(self, step: int, steps: int) -> float:
        decay = self._share * steps
        return min(max(steps - step, 0) / decay, 1.0) if decay else 1.0


class InverseSquareRootOptions(BaseModel):
    """Options of ``inverse_sqrt``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    timescale: int = Field(default=100, ge=1, description="steps after the warm-up at which the rate is 1 / sqrt(2) of the peak")


class InverseSquareRoot(LearningRateSchedule):
    """sqrt(timescale / (timescale + step)), whatever the length of the run.

    After Attention Is All You Need (arXiv 1706.03762), equation 3.
    """

    def __init__(self, options: InverseSquareRootOptions | None = None) -> None:
        self._timescale = (options or InverseSquareRootOptions()).timescale

    def share(self, step: int, steps: int) -> float:
        return math.sqrt(self._timescale / (self._timescale + step))


def learning_rate(settings: OptimizerSettings, step: int) -> float:
    """Return the learning rate of optimizer step ``step``, counted from 0.

    Linear warm-up: step ``s`` of ``warmup_steps`` takes ``(s + 1) / warmup_steps`` of the rate, so no step is wasted at 0. Then
    ``learning_rate * (min_lr_ratio + (1 - min_lr_ratio) * share)`` with the ``share`` of the schedule. All of it times the ``factor`` of
    the controllers.

    :raises RunError: the schedule fails, or its share is not a finite number of at least 0.
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps * settings.factor.value
    schedule, after = settings.schedule or Cosine(), step - settings.warmup_steps
    who = f"learning-rate schedule {type(schedule).__name__}"
    with error_context(who, f"computing the share of step {after}"):
        share = float(schedule.share(after, max(settings.total_steps - settings.warmup_steps, 1)))
    if not 0.0 <= share < math.inf:
        raise RunError(f"{who} returned the share {share} for step {after}; it must be a finite number of at least 0")
    floor = settings.min_lr_ratio
    return settings.learning_rate * (floor + (1.0 - floor) * share) * settings.factor.value
