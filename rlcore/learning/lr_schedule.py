"""The learning rate of each optimizer step."""

from __future__ import annotations

import math

from rlcore.contracts.training_settings import OptimizerSettings

__all__ = ["learning_rate"]


def learning_rate(settings: OptimizerSettings, step: int) -> float:
    """Return the learning rate of optimizer step ``step``, counted from 0.

    Linear warm-up: step ``s`` of ``warmup_steps`` takes ``(s + 1) / warmup_steps`` of the rate, so no step is wasted at 0. Then half a
    cosine down to ``min_lr_ratio * learning_rate`` at ``total_steps``, and constant afterwards.
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    span = max(settings.total_steps - settings.warmup_steps, 1)
    progress = min((step - settings.warmup_steps) / span, 1.0)
    floor = settings.min_lr_ratio
    return settings.learning_rate * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress)))
