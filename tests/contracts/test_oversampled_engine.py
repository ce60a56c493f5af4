"""Oversampling on the transformers engine: who is kept answers as without it, and two runs of it are equal to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from rlcore_plugin_quickstart.digits_tokenizer import VOCABULARY, build_tokenizer
from rlcore_plugin_transformers.engine import TransformersBackend
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import InferenceContext, Message, Prompt, Rollout, Sampling, Score
from rlcore.api.conversations import Conversation
from rlcore.roles.producer import GroupJob, Produced, Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule.accounting import TimeAccount
from rlcore.testing import ChatTokenizer, FakeConversation, FakeConversationOptions

LIMIT, KEPT, SPARE = 48, 4, 3


class Unjudged:
    """Every rollout is worth nothing."""

    def __init__(self) -> None:
        self.done: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        self.done.append((key, (Score(value=0.0),) * len(rollouts)))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        done, self.done = self.done, []
        return done


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("qwen2")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    Qwen2ForCausalLM(Qwen2Config(vocab_size=len(VOCABULARY), initializer_range=0.3, **sizes)).save_pretrained(folder)
    return str(folder)


def made(checkpoint: str, conversation: Conversation, sampled: int, spare: int, poll: float = 1.0) -> list[Produced]:
    """Three prompts, two of them at a time, made by a producer on the transformers engine."""
    tokenizer = ChatTokenizer(build_tokenizer())
    context = InferenceContext(model=checkpoint, tokenizer=tokenizer, prompts_per_forward=2, max_tokens=LIMIT + 16, device="cpu")
    producer = Producer("p0", TransformersBackend(context), tokenizer, Unjudged(), TimeAccount(), conversation)
    samplings = (Sampling(temperature=0.9, max_new_tokens=LIMIT),) * (sampled + spare)
    producer.accept(
        [
            GroupJob(
                key=n,
                prompt=Prompt(prompt_id=text, index=n, messages=(Message(role="user", content=text),)),
                samplings=samplings,
                noise=(0, 0, n),
                spare=spare,
            )
            for n, text in enumerate(("sort 3 1", "9 8", "7"))
        ]
    )
    results: list[Produced] = []
    while not producer.idle:
        results += producer.step(poll)
    return sorted(results, key=lambda one: one.job.key)


@pytest.mark.full
@pytest.mark.parametrize("turns", [1, 3])
def test_who_is_kept_answers_as_without_it_and_two_runs_are_equal(checkpoint: str, turns: int) -> None:
    conversation = SingleTurn() if turns == 1 else FakeConversation(FakeConversationOptions(rounds=turns, saying="1", tokens=12))
    everything = made(checkpoint, conversation, KEPT + SPARE, 0)
    one, other = made(checkpoint, conversation, KEPT, SPARE), made(checkpoint, conversation, KEPT, SPARE, poll=0.0)
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
