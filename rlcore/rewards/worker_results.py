"""Prepare the answers of a worker: verdicts in their plain form, and exceptions in words. Does not know about processes or sockets."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.contracts.errors import InfrastructureError
from rlcore.contracts.reward_interface import AsyncReward, Reward
from rlcore.contracts.types import Outcome, RewardInput, Score
from rlcore.rewards.worker_protocol import Broken, Done

__all__ = ["accident", "broken", "checked", "describe", "failed", "first_complaint"]

_REASON_LENGTH = 500
_TRACE_LENGTH = 6000


def checked(verdict: Any, item: RewardInput) -> Score:
    """Return the verdict on ``item`` as a plain ``Score``. Raises TypeError or ValueError with the broken rule if it is not valid."""
    if not isinstance(verdict, Score):
        raise TypeError(f"the reward returned {type(verdict).__name__}, it must return a Score")
    outcome = Outcome(verdict.outcome)
    if outcome in (Outcome.TIMEOUT, Outcome.ERROR, Outcome.INFRA):
        raise ValueError(f"outcome {outcome.value} is reserved for rlcore; raise an exception (InfrastructureError for infra) instead")
    accuracy = None if verdict.accuracy is None else _finite("accuracy", verdict.accuracy)
    if accuracy is not None and not 0.0 <= accuracy <= 1.0:
        raise ValueError(f"accuracy is {accuracy}; it must be between 0 and 1")
    if not isinstance(verdict.parts, Mapping):
        raise TypeError(f"parts is a {type(verdict.parts).__name__}; it must be a mapping of names to numbers")
    turns = sum(message.policy for message in item.turns)
    if verdict.turn_rewards and len(verdict.turn_rewards) != turns:
        raise ValueError(f"turn_rewards has {len(verdict.turn_rewards)} numbers; the policy has {turns} turns, and each needs one")
    tokens = verdict.token_rewards
    return Score(
        value=_finite("value", verdict.value),
        accuracy=accuracy,
        format_ok=None if verdict.format_ok is None else bool(verdict.format_ok),
        parts={str(name): _finite(f"part {name}", part) for name, part in verdict.parts.items()},
        outcome=outcome,
        reason=str(verdict.reason)[:_REASON_LENGTH],
        parsed=None if verdict.parsed is None else str(verdict.parsed)[:_REASON_LENGTH],
        in_statistics=bool(verdict.in_statistics) and outcome.judged,
        in_loss=bool(verdict.in_loss) and outcome.judged,
        turn_rewards=tuple(_finite("a turn reward", value) for value in verdict.turn_rewards),
        token_rewards=None if tokens is None else tuple(_finite("a token reward", value) for value in tokens),
        branch_values=tuple(_finite("the value of a branch", value) for value in verdict.branch_values),
    )


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(value).__name__}; it must be a number") from error
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; it must be finite")
    return number


def first_complaint(reward: Reward | AsyncReward, items: Sequence[RewardInput]) -> str | None:
    """Return why the reward cannot score the first row that it cannot score; None if it can score all. Raises TypeError for another
    answer."""
    for item in items:
        complaint: object = reward.check(item.columns)
        if not isinstance(complaint, str | None):
            raise TypeError(f"check returned {type(complaint).__name__}, it must return a reason or None")
        if complaint is not None:
            return complaint
    return None


def accident(task_id: int, count: int, error: BaseException, seconds: float) -> Done:
    """Return the end of a task whose reward raised.

    The outcome is ``infra``, with one more attempt, if the exception reports a failure of the machine; else it is ``error``."""
    if isinstance(error, InfrastructureError):
        return failed(task_id, count, Outcome.INFRA, describe(error), seconds, again=True)
    return failed(task_id, count, Outcome.ERROR, describe(error), seconds, trace=_trace(error))


def failed(task_id: int, count: int, outcome: Outcome, reason: str, seconds: float, *, again: bool = False, trace: str = "") -> Done:
    """Return the end of a task without a verdict on its ``count`` items."""
    scores = (Score.failed(outcome, reason),) * count
    return Done(task_id=task_id, scores=scores, complaint=reason, seconds=seconds, failure=outcome, again=again, trace=trace)


def broken(name: str, error: BaseException) -> Broken:
    """Return the message that the reward ``name`` could not be built or opened."""
    return Broken(name=name, reason=describe(error), infra=isinstance(error, InfrastructureError))


def describe(error: BaseException) -> str:
    """Return one line with the exception's class and text."""
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except Exception:  # an exception whose own text raises
        text = type(error).__name__
    return " ".join(text.split())[:_REASON_LENGTH]


def _trace(error: BaseException) -> str:
    """Return the traceback without rlcore's own frames. A long one is cut at the beginning."""
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith("rlcore.rewards."):
            frames = frames.tb_next
        return "".join(traceback.format_exception(type(error), error, frames))[-_TRACE_LENGTH:]
    except Exception:  # an exception that cannot be formatted
        return ""
