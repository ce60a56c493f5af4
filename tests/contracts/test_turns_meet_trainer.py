"""Several turns, from the real engine to the real trainer: every answer has the log probabilities that the trainer computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from rlcore_plugin_quickstart.digits_tokenizer import VOCABULARY, build_tokenizer
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_transformers.engine import TransformersBackend
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import Group, InferenceContext, Message, OptimizerSettings, Prompt, Rollout, Sampling, Score, TrainingContext, Which
from rlcore.api.conversations import Conversation
from rlcore.learning import BatchSettings, ClippedSurrogate, PolicyObjective, assemble_batch, prepare_loss
from rlcore.roles.producer import GroupJob, Produced, Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule.accounting import TimeAccount
from rlcore.testing import ChatTokenizer, FakeConversation, FakeConversationOptions

LIMIT, TOLERANCE = 48, 2e-4


class Unjudged:
    """Every rollout is worth its place."""

    def __init__(self) -> None:
        self.done: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        self.done.append((key, tuple(Score(value=float(index)) for index in range(len(rollouts)))))

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


def groups(checkpoint: str, conversation: Conversation) -> list[Group]:
    """Two prompts, three rollouts each, made by a producer on the transformers engine."""
    tokenizer = ChatTokenizer(build_tokenizer())
    context = InferenceContext(model=checkpoint, tokenizer=tokenizer, prompts_per_forward=2, max_tokens=LIMIT + 16, device="cpu")
    producer = Producer("p0", TransformersBackend(context), tokenizer, Unjudged(), TimeAccount(), conversation)
    prompts = [
        Prompt(prompt_id=text, index=n, messages=(Message(role="user", content=text),)) for n, text in enumerate(("sort 3 1", "9 8"))
    ]
    sampling = Sampling(temperature=0.9, max_new_tokens=LIMIT)
    producer.accept(
        [GroupJob(key=prompt.index, prompt=prompt, samplings=(sampling,) * 3, noise=(0, 0, prompt.index)) for prompt in prompts]
    )
    results: list[Produced] = []
    while not producer.idle:
        results += producer.step(1.0)
    results.sort(key=lambda one: one.job.key)
    return [
        Group(prompt_id=one.job.prompt.prompt_id, episode=0, prompt_index=one.job.key, rollouts=one.rollouts, scores=one.scores)
        for one in results
    ]


def trainer(checkpoint: str) -> TorchBackend:
    context = TrainingContext(
        model=checkpoint,
        optimizer=OptimizerSettings(learning_rate=1e-3),
        rollouts_per_forward=4,
        tokens_per_forward=1000,
        prompts_per_slice=10,
        device="cpu",
    )
    made = TorchBackend(context)
    made.setup(context)
    return made


@pytest.mark.parametrize(
    "conversation",
    [FakeConversation(FakeConversationOptions(rounds=3, saying="again?", tokens=6)), SingleTurn()],
    ids=["three turns", "one turn"],
)
def test_every_turn_has_the_log_probabilities_that_the_trainer_computes(checkpoint: str, conversation: Conversation) -> None:
    made = groups(checkpoint, conversation)
    assembled = assemble_batch(made, np.tile([1.0, -0.5, 0.25], 2), BatchSettings(max_new_tokens=LIMIT))
    batch = prepare_loss("clipped", ClippedSurrogate(), assembled)
    backend = trainer(checkpoint)
    found = backend.logprobs(batch, Which.POLICY)
    assert float(np.abs(found - batch.rollout_logprobs).max()) < TOLERANCE
    metrics = backend.update(batch, PolicyObjective(loss=ClippedSurrogate()))
    assert metrics["sampler_gap"] < TOLERANCE
    turns = [sum(message.policy for message in rollout.turns) or 1 for group in made for rollout in group.rollouts]
    assert max(turns) == conversation.max_turns, turns
