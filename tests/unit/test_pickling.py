"""Records that are pickled by their fields come back as they were."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from dataclasses import dataclass, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.api import FinishReason, Message, Outcome, RewardInput, Score
from rlcore.rewards.worker_protocol import Call, Done, Task

MESSAGES = st.builds(Message, role=st.sampled_from(["user", "assistant"]), content=st.text(), policy=st.booleans())
INPUTS = st.builds(
    RewardInput,
    messages=st.tuples(MESSAGES),
    columns=st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())),
    text=st.text(),
    finish=st.sampled_from(FinishReason),
)
SCORES = st.builds(
    Score,
    value=st.floats(allow_nan=False),
    accuracy=st.none() | st.floats(0, 1),
    outcome=st.sampled_from(Outcome),
    reason=st.text(),
    parts=st.dictionaries(st.text(), st.floats(allow_nan=False)),
    token_rewards=st.none() | st.tuples(st.floats(allow_nan=False)),
)
TASKS = st.builds(
    Task, task_id=st.integers(0), reward=st.integers(0, 9), call=st.sampled_from(Call), items=st.tuples(INPUTS), deadline=st.floats(0, 9)
)
DONE = st.builds(Done, task_id=st.integers(0), scores=st.tuples(SCORES), failure=st.none() | st.sampled_from(Outcome), retire=st.booleans())


@given(st.one_of(MESSAGES, INPUTS, SCORES, TASKS, DONE), st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_a_record_comes_back_as_it_was(record: Any, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(record, protocol=protocol))
    assert type(again) is type(record)
    assert again == record == copy(record) == deepcopy(record)
    assert all(type(getattr(again, field.name)) is type(getattr(record, field.name)) for field in fields(record))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedScore(Score):
    """What a plugin may make of a record."""

    by: str = ""


def test_a_derived_record_keeps_what_it_adds() -> None:
    score = SignedScore(value=1.0, by="me")
    assert pickle.loads(pickle.dumps(score)) == score


def test_a_record_that_came_back_is_frozen_too() -> None:
    score = pickle.loads(pickle.dumps(Score(value=1.0)))
    with pytest.raises(AttributeError):
        score.value = 2.0
