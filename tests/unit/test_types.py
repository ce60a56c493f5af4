"""Records: frozen, checked, and the same after a journey."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from rlcore.contracts.types import Completion, Finish, Group, Outcome, Request, Rollout, Sampling, Score, Segment


def segment(**changes: object) -> Segment:
    values = {"context_ids": [1, 2], "token_ids": [5, 6], "logprobs": [-0.1, -0.2], "versions": [3, 4], "policy_mask": [True, True]}
    return Segment(**{**values, **changes})  # type: ignore[arg-type]


def test_arrays_are_copied_typed_and_read_only() -> None:
    source = np.array([5, 6], np.int64)
    made = segment(token_ids=source)
    source[0] = 9
    assert made.token_ids.tolist() == [5, 6]
    assert made.token_ids.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        made.token_ids[0] = 1


def test_a_segment_survives_pickling_checked_and_read_only() -> None:
    copy = pickle.loads(pickle.dumps(segment()))
    assert copy.logprobs.tolist() == segment().logprobs.tolist()
    assert not copy.token_ids.flags.writeable


def test_per_token_arrays_must_have_one_length() -> None:
    with pytest.raises(ValueError, match="one length"):
        segment(logprobs=[-0.1])
    with pytest.raises(ValueError, match="must be equal"):
        Completion(request_id="a", token_ids=[1], logprobs=[], versions=[0], finish=Finish.STOP)  # type: ignore[arg-type]


def test_records_are_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Score(value=1.0).value = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Score(1.0)  # type: ignore[misc]


def test_a_rollout_counts_only_what_the_policy_sampled_and_knows_its_oldest_version() -> None:
    rollout = Rollout(prompt_id="p", index=0, segments=(segment(policy_mask=[True, False]), segment()), text="", finish=Finish.STOP)
    assert rollout.length == 3
    assert rollout.version == 3
    empty = segment(token_ids=[], logprobs=[], versions=[], policy_mask=[])
    assert Rollout(prompt_id="p", index=0, segments=(empty,), text="", finish=Finish.STOP).version is None


def test_a_rollout_needs_a_segment_and_a_group_a_score_each() -> None:
    with pytest.raises(ValueError, match="no segment"):
        Rollout(prompt_id="p", index=0, segments=(), text="", finish=Finish.STOP)
    rollout = Rollout(prompt_id="p", index=0, segments=(segment(),), text="", finish=Finish.STOP)
    with pytest.raises(ValueError, match="one each"):
        Group(prompt_id="p", episode=0, prompt_index=0, rollouts=(rollout,), scores=())


def test_an_accident_of_the_judge_is_masked_everywhere_and_a_verdict_nowhere() -> None:
    failed = Score.failed(Outcome.TIMEOUT, "5 s")
    assert not failed.in_loss
    assert not failed.in_statistics
    assert not failed.outcome.judged
    assert Score(value=0.0, outcome=Outcome.WRONG).in_loss
    assert {outcome for outcome in Outcome if outcome.judged} == {Outcome.OK, Outcome.WRONG, Outcome.MALFORMED, Outcome.UNPARSEABLE}


def test_only_a_cut_vocabulary_truncates() -> None:
    assert not Sampling().truncates
    assert Sampling(top_p=0.9).truncates
    assert Sampling(top_k=5).truncates
    assert not Request(request_id="r", token_ids=[1], sampling=Sampling(temperature=0.0)).token_ids.flags.writeable  # type: ignore[arg-type]
