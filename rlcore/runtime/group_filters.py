"""Applies the filters of a run to a group as it arrives: which of its rollouts may be in the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlcore.config import Plan
from rlcore.contracts.errors import FilterError
from rlcore.contracts.group_filter import GroupFilter
from rlcore.contracts.specs import LABELS, PluginKind
from rlcore.contracts.types import FinishReason, Group, Rollout, RolloutKind, Score
from rlcore.registry.error_context import error_context
from rlcore.registry.targets import described
from rlcore.schedule import Delivery

__all__ = ["GroupFilters", "make_group_filters"]


def make_group_filters(plan: Plan) -> GroupFilters:
    """Return the filters of a run or of a source, in the order of ``algorithm.filters``."""
    kind, registry, made = PluginKind.FILTER, plan.registry, []
    for name, options in zip(plan.config.algorithm.filters, plan.filter_options, strict=True):
        who = f"{LABELS[kind]} {name!r} of {registry.owner(kind, name)}"
        made.append((registry.spec(kind, name).name, who, registry.make(kind, name, options=options)))
    return GroupFilters(made)


class GroupFilters:
    """Filters in their order, each as (name of its spec, label for errors, filter)."""

    def __init__(self, filters: Sequence[tuple[str, str, GroupFilter]]) -> None:
        self._filters = filters

    def applied(self, group: Group, delivery: Delivery) -> tuple[Group, Delivery]:
        """Return the group without ``in_loss`` for the removed rollouts, and its report with what each filter removed.

        A filter sees which rollouts the earlier ones removed. Those after a filter that leaves nothing are not asked.

        :raises FilterError: a filter raises, or its answer is not one bool for each rollout.
        """
        if not self._filters or delivery.failed:
            return group, delivery
        could = [_can_train(rollout, score) for rollout, score in zip(group.rollouts, group.scores, strict=True)]
        trains, removed, filtered = could, [], ""
        for name, who, chosen in self._filters:
            scores = [replace(score, in_loss=still) for score, still in zip(group.scores, trains, strict=True)]
            kept = _answer(who, chosen, replace(group, scores=tuple(scores)))
            before, trains = sum(trains), [still and keep for still, keep in zip(trains, kept, strict=True)]
            if gone := before - sum(trains):
                removed.append((name, gone))
            if not any(trains) and (gone or not any(kept)):
                filtered = name
                break
        lost = [was and not still for was, still in zip(could, trains, strict=True)]
        scores = [replace(score, in_loss=False) if out else score for score, out in zip(group.scores, lost, strict=True)]
        return replace(group, scores=tuple(scores)), replace(delivery, removed=tuple(removed), filtered=filtered)


def _can_train(rollout: Rollout, score: Score) -> bool:
    whole = rollout.kind is RolloutKind.SAMPLED and rollout.finish is not FinishReason.ABORTED
    return whole and score.in_loss and rollout.length > 0


def _answer(who: str, chosen: GroupFilter, group: Group) -> list[bool]:
    with error_context(who, f"filtering the group of prompt {group.prompt_id}", raised=FilterError):
        given: Any = chosen.keep(group)
        if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str | bytes):
            raise FilterError(f"{who} returned {described(given)} from keep(); it must return one bool for each rollout of the group")
        if len(given) != len(group.rollouts):
            raise FilterError(
                f"{who} returned {len(given)} values from keep() for the {len(group.rollouts)} rollouts of prompt {group.prompt_id}; it "
                "must return one bool for each"
            )
        if wrong := [value for value in given if not isinstance(value, bool | np.bool_)]:
            raise FilterError(f"{who} returned {wrong[0]!r} from keep(); each value must be a bool")
        return [bool(value) for value in given]
