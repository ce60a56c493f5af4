"""Oversampling on the transformers engine: who is kept answers as without it, and two runs of it are equal to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_producer import produced, save_tiny_qwen2

from rlcore.roles.single_turn import SingleTurn
from rlcore.testing.conversations.fake_conversation import FakeConversation, FakeConversationOptions

KEPT, SPARE = 4, 3
TEXTS = ("sort 3 1", "9 8", "7")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_qwen2(tmp_path_factory.mktemp("qwen2"))


@pytest.mark.full
@pytest.mark.parametrize("turns", [1, 3])
def test_who_is_kept_answers_as_without_it_and_two_runs_are_equal(checkpoint: str, turns: int) -> None:
    conversation = SingleTurn() if turns == 1 else FakeConversation(FakeConversationOptions(rounds=turns, saying="1", tokens=12))
    everything = produced(checkpoint, conversation, TEXTS, sampled=KEPT + SPARE)
    one = produced(checkpoint, conversation, TEXTS, sampled=KEPT, spare=SPARE)
    other = produced(checkpoint, conversation, TEXTS, sampled=KEPT, spare=SPARE, poll=0.0)
    for whole, result, again in zip(everything, one, other, strict=True):
        indices = [rollout.index for rollout in result.rollouts]
        if turns == 1:
            first = sorted(whole.rollouts, key=lambda rollout: (rollout.length, rollout.index))[:KEPT]
            assert indices == sorted(rollout.index for rollout in first)
        assert len(indices) == KEPT
        assert result.cut_tokens == again.cut_tokens > 0
        for rollout, twin in zip(result.rollouts, again.rollouts, strict=True):
            alone = whole.rollouts[rollout.index]
            assert np.array_equal(rollout.token_ids, alone.token_ids)
            for segment, same, plain in zip(rollout.segments, twin.segments, alone.segments, strict=True):
                assert np.array_equal(segment.token_ids, same.token_ids)
                assert segment.logprobs.tobytes() == same.logprobs.tobytes(), "two runs differ"
                np.testing.assert_allclose(segment.logprobs, plain.logprobs, atol=1e-4)  # a batch of another shape rounds otherwise
