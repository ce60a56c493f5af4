"""The ledger: how every prompt of every episode ended. Each is trained, filtered, or failed with a reason; exactly one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EpisodeCounts", "Ledger"]


@dataclass(slots=True)
class EpisodeCounts:
    """The prompts of one episode: how many were leased for the first time, and how many of those have ended in each way."""

    issued: int = 0
    trained: int = 0
    filtered: int = 0
    failed: dict[str, int] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """Prompts that have ended."""
        return self.trained + self.filtered + sum(self.failed.values())

    @property
    def open(self) -> int:
        """Prompts that were leased and have not ended: in flight, ready, in training, or given back."""
        return self.issued - self.ended


class Ledger:
    """Counts by episode. ``reissued`` counts prompts that were given back because of a lost worker, a lost payload or a producer."""

    def __init__(self, prompts: int | None) -> None:
        """Start an empty ledger.

        :param prompts: the size of the data set, which is the sum of every finished episode; None: it has one episode, without end.
        """
        self.prompts = prompts
        self.episodes: dict[int, EpisodeCounts] = {}
        self.reissued = 0
        self.trained = 0
        self.filtered = 0
        self.failed = 0

    @classmethod
    def restored(cls, prompts: int | None, state: Mapping[str, Any]) -> Ledger:
        """Return the ledger that returned this ``state``."""
        ledger = cls(prompts)
        ledger.reissued = state["reissued"]
        for episode, issued, trained, filtered, failed in state["episodes"]:
            ledger.episodes[episode] = EpisodeCounts(issued, trained, filtered, dict(failed))
            ledger.trained += trained
            ledger.filtered += filtered
            ledger.failed += sum(failed.values())
        return ledger

    def issue(self, episode: int) -> None:
        """Record the first lease of a prompt of this episode."""
        tally = self.episodes.setdefault(episode, EpisodeCounts())
        if tally.issued == self.prompts:
            raise ValueError(f"episode {episode} has {self.prompts} prompts and all of them were issued before")
        tally.issued += 1

    def train(self, episode: int) -> None:
        """Record the end of a prompt: its group was trained."""
        self._open(episode).trained += 1
        self.trained += 1

    def filter(self, episode: int) -> None:
        """Record the end of a prompt: its group was not effective."""
        self._open(episode).filtered += 1
        self.filtered += 1

    def fail(self, episode: int, reason: str) -> None:
        """Record the end of a prompt: its group could not be judged."""
        failed = self._open(episode).failed
        failed[reason] = failed.get(reason, 0) + 1
        self.failed += 1

    def _open(self, episode: int) -> EpisodeCounts:
        tally = self.episodes.get(episode)
        if tally is None or tally.open <= 0:
            raise ValueError(f"episode {episode} has no open prompt that could end")
        return tally

    def ended(self) -> dict[str, int]:
        """Return how many prompts ended in each way."""
        return {"trained": self.trained, "filtered": self.filtered, "failed": self.failed}

    def state(self) -> dict[str, Any]:
        """Return JSON values: an episode's number, then its prompts issued, trained, filtered, and failed by reason."""
        rows = [[episode, t.issued, t.trained, t.filtered, dict(t.failed)] for episode, t in sorted(self.episodes.items())]
        return {"reissued": self.reissued, "episodes": rows}
