"""Records: frozen, checked, and the same after a journey."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from rlcore.contracts.types import Completion, FinishReason, Group, Outcome, Request, Rollout, Sampling, Score, Segment


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


@pytest.mark.parametrize(("protocol", "apart"), [(2, False), (4, False), (5, False), (5, True)])
@pytest.mark.parametrize(
    "made",
    [segment(), segment(context_ids=[]), segment(context_ids=range(3), token_ids=[], logprobs=[], versions=[], policy_mask=[])],
    ids=["tokens", "no context", "no tokens"],
)
def test_a_segment_arrives_as_it_was_and_read_only(made: Segment, protocol: int, apart: bool) -> None:
    beside: list[pickle.PickleBuffer] = []
    sent = pickle.dumps(made, protocol, buffer_callback=beside.append if apart else None)
    memory = [bytearray(buffer) for buffer in beside]
    arrived = pickle.loads(sent, buffers=memory)
    assert len(beside) == apart
    for name in ("context_ids", "token_ids", "logprobs", "versions", "policy_mask"):
        before, after = getattr(made, name), getattr(arrived, name)
        assert (after.dtype, after.tolist(), after.flags.writeable) == (before.dtype, before.tolist(), False)
    if apart and len(made.token_ids):
        assert np.shares_memory(arrived.token_ids, np.frombuffer(memory[0], np.uint8)), "it is copied"


def test_a_segment_whose_buffer_was_cut_is_refused() -> None:
    rebuild, (context, tokens, buffer, details) = segment().__reduce_ex__(4)
    with pytest.raises(ValueError, match=r"a segment of 2 and 2 tokens arrived with 33 bytes; it must have 34"):
        rebuild(context, tokens, buffer[:-1], details)


def test_a_segment_holds_no_memory_that_is_only_lent() -> None:
    lent = np.frombuffer(segment().__reduce_ex__(4)[1][2], np.uint8).copy()
    arrived = pickle.loads(pickle.dumps(segment(), 5, buffer_callback=[].append), buffers=[lent])
    lent[:] = 0
    assert arrived.token_ids.tolist() == [5, 6]


def test_what_was_said_goes_without_tokens() -> None:
    rollout = Rollout(prompt_id="p", index=3, segments=(segment(),), text="so", finish=FinishReason.LENGTH, temperature=0.7)
    bare = rollout.without_tokens()
    assert dataclasses.replace(bare, segments=rollout.segments) == rollout
    assert (bare.length, len(bare.segments)) == (0, 1)
    assert len(pickle.dumps([bare] * 8)) < len(pickle.dumps([rollout] * 8))


def test_per_token_arrays_must_have_one_length() -> None:
    with pytest.raises(ValueError, match="one length"):
        segment(logprobs=[-0.1])
    with pytest.raises(ValueError, match="must be equal"):
        Completion(request_id="a", token_ids=[1], logprobs=[], versions=[0], finish=FinishReason.STOP)  # type: ignore[arg-type]


def test_records_are_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Score(value=1.0).value = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Score(1.0)  # type: ignore[misc]


def test_a_rollout_counts_only_what_the_policy_sampled_and_knows_its_oldest_version() -> None:
    rollout = Rollout(prompt_id="p", index=0, segments=(segment(policy_mask=[True, False]), segment()), text="", finish=FinishReason.STOP)
    assert rollout.length == 3
    assert rollout.version == 3
    empty = segment(token_ids=[], logprobs=[], versions=[], policy_mask=[])
    assert Rollout(prompt_id="p", index=0, segments=(empty,), text="", finish=FinishReason.STOP).version is None


def test_a_rollout_needs_a_segment_and_a_group_a_score_each() -> None:
    with pytest.raises(ValueError, match="no segment"):
        Rollout(prompt_id="p", index=0, segments=(), text="", finish=FinishReason.STOP)
    rollout = Rollout(prompt_id="p", index=0, segments=(segment(),), text="", finish=FinishReason.STOP)
    with pytest.raises(ValueError, match="each rollout must have one score"):
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
