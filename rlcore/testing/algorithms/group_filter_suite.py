"""Conformance suite for filters of groups."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlcore.contracts.group_filter import GroupFilter
from rlcore.contracts.types import FinishReason, Group, Outcome, RolloutKind, Score
from rlcore.testing.records import make_rollout

__all__ = ["GroupFilterSuite"]


class GroupFilterSuite(ABC):
    """The rules of a filter of groups. A subclass defines how to make it."""

    @abstractmethod
    def make(self) -> GroupFilter:
        """Return a fresh filter."""

    def groups(self) -> list[Group]:
        """Return groups of one to six rollouts, with equal, different and failed rewards, a greedy rollout and a response without tokens.

        Override it if the filter needs other groups to keep something.
        """
        failed = Score.failed(Outcome.TIMEOUT, "too late")
        return [
            _group("a", [0.0, 1.0, 0.25, 1.0, -2.0, 3.0], lengths=[3, 1, 7, 0, 5, 2]),
            _group("b", [1.0, 1.0, 1.0], lengths=[2, 2, 2]),
            _group("c", [5.0], lengths=[4]),
            _group("d", [0.5, failed, 2.0, failed], lengths=[3, 3, 1, 1]),
            _group("e", [0.0, 1.0, 2.0], lengths=[3, 4, 5], greedy=True),
        ]

    def test_one_bool_for_each_rollout(self) -> None:
        """The answer has one bool for each rollout of the group, also for greedy rollouts and those without a valid score."""
        for group in self.groups():
            kept = self.make().keep(group)
            assert len(kept) == len(group.rollouts), f"{len(kept)} values for the {len(group.rollouts)} rollouts of group {group.prompt_id}"
            wrong = [value for value in kept if not isinstance(value, bool | np.bool_)]
            assert not wrong, f"group {group.prompt_id}: {wrong[0]!r} is not a bool"

    def test_something_trains(self) -> None:
        """Some rollout of some group is kept. If the filter needs other groups for that, override ``groups``."""
        groups = self.groups()
        assert any(_trained(self.make(), group) for group in groups), f"all rollouts of {len(groups)} groups are removed"

    def test_the_same_group_has_the_same_answer(self) -> None:
        """Two calls with one group give the same answer, of one filter and of two."""
        for group in self.groups():
            chosen = self.make()
            answers = [_kept(chosen, group), _kept(chosen, group), _kept(self.make(), group)]
            assert answers[0] == answers[1] == answers[2], f"group {group.prompt_id}: {answers}"

    def test_other_groups_do_not_matter(self) -> None:
        """The answer for a group does not depend on the groups before it: each producer filters its own groups, and a run may resume."""
        walked, groups = self.make(), self.groups()
        for group in [*groups, *reversed(groups)]:
            alone, here = _kept(self.make(), group), _kept(walked, group)
            assert alone == here, f"group {group.prompt_id}: {here} after other groups, {alone} of a fresh filter"

    def test_the_group_is_not_changed(self) -> None:
        """The filter writes into nothing of the group."""
        for group in self.groups():
            before = pickle.dumps(group)
            self.make().keep(group)
            assert pickle.dumps(group) == before, f"group {group.prompt_id} is changed by keep"

    def test_what_cannot_train_has_no_influence(self) -> None:
        """The value of a reward that failed has no influence on the answer for the other rollouts, even if it is NaN."""
        for group in self.groups():
            for value in (1e9, -1e9, float("nan")):
                scores = [score if score.in_statistics else replace(score, value=value) for score in group.scores]
                one, other = _trained(self.make(), group), _trained(self.make(), replace(group, scores=tuple(scores)))
                assert one == other, f"group {group.prompt_id}: {one} are kept, and {other} if failed rewards are {value}"


def _kept(chosen: GroupFilter, group: Group) -> list[bool]:
    return [bool(value) for value in chosen.keep(group)]


def _trained(chosen: GroupFilter, group: Group) -> list[int]:
    """Return the places of the rollouts that are kept, of those that can train."""
    return [place for place, kept in enumerate(_kept(chosen, group)) if kept and group.scores[place].in_loss]


def _group(name: str, scores: Sequence[float | Score], lengths: Sequence[int], *, greedy: bool = False) -> Group:
    """Return a group as the core hands it to a filter: ``in_loss`` is False for each rollout that cannot train. The last is ``greedy``."""
    rollouts = [
        make_rollout([1, 2], list(range(3, 3 + length)), prompt_id=name, index=index, text="x" * length)
        for index, length in enumerate(lengths)
    ]
    made = [score if isinstance(score, Score) else Score(value=score, parts={"reward": score}) for score in scores]
    if greedy:
        rollouts[-1] = replace(rollouts[-1], kind=RolloutKind.GREEDY, temperature=0.0)
    rollouts[0] = replace(rollouts[0], finish=FinishReason.LENGTH)
    trains = [rollout.length > 0 and rollout.kind is RolloutKind.SAMPLED for rollout in rollouts]
    made = [replace(score, in_loss=score.in_loss and can) for score, can in zip(made, trains, strict=True)]
    return Group(prompt_id=name, episode=0, prompt_index=0, rollouts=tuple(rollouts), scores=tuple(made))
