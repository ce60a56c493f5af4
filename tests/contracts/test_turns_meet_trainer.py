"""Several turns, from the real engine to the real trainer: every answer has the log probabilities that the trainer computes."""

from __future__ import annotations

import numpy as np
import pytest
from rlcore_plugin_torch.backend import TorchBackend
from tiny_producer import LIMIT, produced, save_tiny_qwen2

from rlcore.api import Group, ModelRole, OptimizerSettings, TrainingContext
from rlcore.api.conversations import Conversation
from rlcore.learning import BatchSettings, ClippedSurrogate, PolicyObjective, assemble_batch, prepare_loss
from rlcore.roles.single_turn import SingleTurn
from rlcore.testing.conversations.fake_conversation import FakeConversation, FakeConversationOptions

TOLERANCE = 2e-4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_qwen2(tmp_path_factory.mktemp("qwen2"))


def groups(checkpoint: str, conversation: Conversation) -> list[Group]:
    """Two prompts, three rollouts each."""
    return [
        Group(prompt_id=one.job.prompt.prompt_id, episode=0, prompt_index=one.job.key, rollouts=one.rollouts, scores=one.scores)
        for one in produced(checkpoint, conversation, ("sort 3 1", "9 8"), sampled=3)
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
    found = backend.logprobs(batch, ModelRole.POLICY)
    assert float(np.abs(found - batch.rollout_logprobs).max()) < TOLERANCE
    metrics = backend.update(batch, PolicyObjective(loss=ClippedSurrogate()))
    assert metrics["sampler_gap"] < TOLERANCE
    turns = [sum(message.policy for message in rollout.turns) or 1 for group in made for rollout in group.rollouts]
    assert max(turns) == conversation.max_turns, turns
