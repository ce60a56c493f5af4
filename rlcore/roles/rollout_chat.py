"""A rollout's conversation in logs and figures: its messages with what is known about each, and the numbers of ``extra``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from math import ldexp
from statistics import fmean
from typing import Any

import numpy as np

from rlcore.contracts.types import Rollout, Score

__all__ = ["chat_of", "extra_figures", "finite_mean"]

_MOST_NAMES = 32
_NAME = re.compile(r"[\w.@:/ -]{1,64}")


def extra_figures(extras: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return ``conversation/<name>`` for the numbers in ``Rollout.extra``: the mean over the rollouts that have a number of this name.

    There are at most 32 names, the first ones in alphabetical order. A name of other characters than letters, digits and ``_.@:/ -``, or
    of more than 64, has no figure; a number that is not finite counts as absent.
    """
    found: dict[str, list[float]] = {}
    for extra in extras:
        for name, value in _numbers(extra).items():
            found.setdefault(name, []).append(float(value))
    return {f"conversation/{name}": finite_mean(found[name]) for name in sorted(found)[:_MOST_NAMES]}


def finite_mean(values: Sequence[float]) -> float:
    """Return the mean of finite numbers, also of those whose sum is too large for a float."""
    try:
        return fmean(values)
    except OverflowError:
        return ldexp(fmean(ldexp(value, -64) for value in values), 64)


def chat_of(rollout: Rollout, score: Score) -> dict[str, Any]:
    """Return the fields of a log's row about the conversation: ``turns``, ``turn_rewards`` and ``branches`` (number of segments and reward)
    if there are messages, ``extra`` if it has numbers.

    ``turns``: role, content, ``policy`` and, if there are some, tool calls and inserted spans. Messages of the policy have ``tokens``, and
    ``segment`` (from 0) if the rollout has several segments, if the conversation reported their lengths.
    """
    extra = {"extra": numbers} if (numbers := _numbers(rollout.extra)) else {}
    if not rollout.turns:
        return extra
    of_policy = iter(_places(rollout))
    turns = []
    for turn in rollout.turns:
        spans = {"inserted": [list(span) for span in turn.inserted]} if turn.inserted else {}
        turns.append({**turn.plain(), "policy": turn.policy, **spans, **(next(of_policy, {}) if turn.policy else {})})
    branches = {"branches": [[one.segments, value] for one, value in zip(rollout.branches, score.branch_values, strict=False)]}
    return {"turns": turns, "turn_rewards": list(score.turn_rewards), **(branches if score.branch_values else {}), **extra}


def _places(rollout: Rollout) -> list[dict[str, int]]:
    """Return the number of tokens of each message of the policy, and the segment that holds it if there are several."""
    ends = np.cumsum([int(segment.policy_mask.sum()) for segment in rollout.segments])
    starts = np.cumsum([0, *rollout.turn_lengths])[:-1]
    holders = np.searchsorted(ends[:-1], starts, side="right").tolist()
    several = len(rollout.segments) > 1
    return [
        {"tokens": length, **({"segment": holder} if several else {})} for length, holder in zip(rollout.turn_lengths, holders, strict=True)
    ]


def _numbers(extra: Mapping[str, Any]) -> dict[str, float]:
    most = sys.float_info.max
    return {
        name: value
        for name, value in extra.items()
        if isinstance(name, str) and _NAME.fullmatch(name) and isinstance(value, int | float) and -most <= value <= most
    }
