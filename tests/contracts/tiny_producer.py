"""Groups of a tiny random Qwen2 that a producer makes on the transformers engine, for tests that look at what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from rlcore_plugin_quickstart.digits_tokenizer import VOCABULARY, build_tokenizer
from rlcore_plugin_transformers.engine import TransformersBackend
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import InferenceContext, Message, Prompt, Rollout, Sampling, Score
from rlcore.api.conversations import Conversation
from rlcore.roles.producer import GroupJob, ProducedGroup, Producer
from rlcore.schedule.accounting import TimeAccount
from rlcore.testing import ChatTokenizer

__all__ = ["LIMIT", "produced", "save_tiny_qwen2"]

LIMIT = 48
"""Tokens of a response at most."""


class _IndexJudge:
    """A rollout is worth its place in the group."""

    def __init__(self) -> None:
        self.done: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        self.done.append((key, tuple(Score(value=float(index)) for index in range(len(rollouts)))))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        done, self.done = self.done, []
        return done


def save_tiny_qwen2(folder: Path) -> str:
    """Two layers over the vocabulary of the quickstart; returns the folder."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    Qwen2ForCausalLM(Qwen2Config(vocab_size=len(VOCABULARY), initializer_range=0.3, **sizes)).save_pretrained(folder)
    return str(folder)


def produced(
    checkpoint: str, conversation: Conversation, texts: Sequence[str], *, sampled: int, spare: int = 0, poll: float = 1.0
) -> list[ProducedGroup]:
    """What becomes of a prompt a text, two of them at a time, in their order; ``sampled`` rollouts of each, and ``spare`` to be cut."""
    tokenizer = ChatTokenizer(build_tokenizer())
    context = InferenceContext(model=checkpoint, tokenizer=tokenizer, prompts_per_forward=2, max_tokens=LIMIT + 16, device="cpu")
    producer = Producer("p0", TransformersBackend(context), tokenizer, _IndexJudge(), TimeAccount(), conversation)
    samplings = (Sampling(temperature=0.9, max_new_tokens=LIMIT),) * (sampled + spare)
    prompts = [Prompt(prompt_id=text, index=n, messages=(Message(role="user", content=text),)) for n, text in enumerate(texts)]
    producer.accept([GroupJob(key=one.index, prompt=one, samplings=samplings, noise=(0, 0, one.index), spare=spare) for one in prompts])
    results: list[ProducedGroup] = []
    while not producer.idle:
        results += producer.step(poll)
    return sorted(results, key=lambda one: one.job.key)
