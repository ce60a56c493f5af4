"""Where the seconds of the training loop went: by worker and activity, from its first lease to its last update."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlcore.schedule import TimeAccount

__all__ = ["Timing"]


@dataclass(slots=True)
class Timing:
    """``seconds`` of wall clock; ``by_activity``: each worker's activities sum to it, ``idle`` included. What the trainer says of its own
    steps stands below ``trainer/training`` and is part of it."""

    seconds: float = 0.0
    by_activity: dict[str, float] = field(default_factory=dict)
    _since: float = 0.0

    @classmethod
    def start(cls, accounts: Mapping[str, TimeAccount]) -> Timing:
        """From here on; what was booked before (start, first evaluation) does not count."""
        for account in accounts.values():
            account.take()
        return cls(_since=time.monotonic())

    def stop(self, accounts: Mapping[str, TimeAccount], inside_training: Mapping[str, float]) -> None:
        """Up to here."""
        self.seconds = time.monotonic() - self._since
        booked = {f"{worker}/{part}": spent for worker, account in accounts.items() for part, spent in account.totals().items()}
        inside = {f"trainer/training/{part}": spent for part, spent in inside_training.items()}
        self.by_activity = {name: round(spent, 3) for name, spent in {**booked, **inside}.items()}
