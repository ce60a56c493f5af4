"""Learning-rate schedules with one planted bug each."""

from __future__ import annotations

from rlcore.contracts.training_settings import LearningRateSchedule


class CountsItsCalls(LearningRateSchedule):
    """A rate that falls with each call, so it starts anew when a run is resumed."""

    calls = 0

    def share(self, step: int, steps: int) -> float:
        self.calls += 1
        return 1.0 / self.calls


class BelowZeroAfterTheEnd(LearningRateSchedule):
    def share(self, step: int, steps: int) -> float:
        return 1.0 - step / steps


class ForgetsTheFirstStep(LearningRateSchedule):
    """0 at step 0: a run of one step does not train."""

    def share(self, step: int, steps: int) -> float:
        return min(step / steps, 1.0)
