"""What a reward is asked about a row and its responses. The judge of a run and the scorer of files ask the same, or their scores differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcore.rewards.entry import RewardEntry, Traits
from rlcore.rewards.protocol import Call, Task
from rlcore.types import RewardInput

__all__ = ["check_task", "score_tasks", "seen_columns"]


def seen_columns(entry: RewardEntry, traits: Traits, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Of a row's columns those that the reward declared; all of them where it declared nothing and cannot."""
    wanted = columns if traits.requires is None else {*traits.requires, *entry.spec.requires}
    return {name: value for name, value in columns.items() if name in wanted}


def check_task(task_id: int, reward: int, entry: RewardEntry, item: RewardInput) -> Task:
    """Can it judge this row?"""
    return Task(task_id=task_id, reward=reward, call=Call.CHECK, items=(item,), deadline=entry.deadline)


def score_tasks(
    task_ids: Iterator[int], reward: int, entry: RewardEntry, traits: Traits, items: Mapping[int, RewardInput]
) -> list[tuple[Task, tuple[int, ...]]]:
    """Tasks that judge the responses of one prompt, given by their places, each with the places that it judges: one task for all where
    the reward judges groups, with the time of all, else one a response."""
    places = tuple(items)
    shares: Sequence[tuple[int, ...]] = [(place,) for place in places]
    if traits.group_level and places:
        shares = [places]
    call = Call.GROUP if traits.group_level else Call.SCORE
    return [
        (
            Task(
                task_id=next(task_ids),
                reward=reward,
                call=call,
                items=tuple(items[place] for place in share),
                deadline=entry.deadline * len(share),
            ),
            share,
        )
        for share in shares
    ]
