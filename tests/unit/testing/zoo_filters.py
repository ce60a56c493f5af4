"""Filters of groups with one planted bug each."""

from __future__ import annotations

from typing import Any

from rlcore.contracts.group_filter import GroupFilter
from rlcore.contracts.types import Group


class AnswersWithNumbers(GroupFilter):
    def keep(self, group: Group) -> Any:
        return [float(score.value > 0.0) for score in group.scores]


class ForgetsTheFailed(GroupFilter):
    """One value for each rollout that counts, so that the others move up."""

    def keep(self, group: Group) -> list[bool]:
        return [score.value > 0.0 for score in group.scores if score.in_statistics]


class WantsTheImpossible(GroupFilter):
    def keep(self, group: Group) -> list[bool]:
        return [score.value > 1e6 for score in group.scores]


class DrawsLots(GroupFilter):
    """Every second call keeps nothing."""

    calls = 0

    def keep(self, group: Group) -> list[bool]:
        DrawsLots.calls += 1
        return [DrawsLots.calls % 2 == 1] * len(group.scores)


class BeatsTheLastGroup(GroupFilter):
    """Keeps what is better than the best of the group before; two calls with one group agree."""

    def __init__(self) -> None:
        self.last = self.now = ("", float("-inf"))

    def keep(self, group: Group) -> list[bool]:
        if group.prompt_id != self.now[0]:
            self.last, self.now = self.now, (group.prompt_id, max(score.value for score in group.scores))
        return [score.value > self.last[1] for score in group.scores]


class AddsItsMark(GroupFilter):
    def keep(self, group: Group) -> list[bool]:
        for score in group.scores:
            score.parts["kept"] = 1.0  # type: ignore[index]
        return [True] * len(group.scores)


class RanksTheFailed(GroupFilter):
    """The best half by value, with the values of rewards that failed."""

    def keep(self, group: Group) -> list[bool]:
        middle = sorted(score.value for score in group.scores)[len(group.scores) // 2]
        return [score.value >= middle for score in group.scores]
