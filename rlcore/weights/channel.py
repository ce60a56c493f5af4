"""The in-process channel: one immutable snapshot at a time, the newest wins. Publishing never waits for a reader."""

from __future__ import annotations

from rlcore.errors import WeightsError
from rlcore.snapshots import Snapshot

__all__ = ["LocalChannel"]


class LocalChannel:
    """Holds the newest snapshot. A snapshot is immutable, so a reader that still uses an old one is undisturbed."""

    def __init__(self) -> None:
        self._newest: Snapshot | None = None

    def publish(self, snapshot: Snapshot) -> None:
        """Make it the newest; versions only rise."""
        if self._newest is not None and snapshot.version <= self._newest.version:
            raise WeightsError(f"snapshot {snapshot.version} was published after {self._newest.version}; versions must rise")
        self._newest = snapshot

    def newer_than(self, version: int) -> Snapshot | None:
        """The newest snapshot, None where the reader already serves it."""
        newest = self._newest
        return newest if newest is not None and newest.version > version else None
