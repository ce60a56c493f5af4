"""From the ledger to the gradient: each sampled token of what trains counts once, with its own weight, and no other token counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ledger_laws import STEPS, Episode

from rlcore.api import FinishReason, Group, Rollout, Score
from rlcore.learning import BatchSettings, ClippedSurrogate, PolicyObjective, assemble_batch, collate, plan_micro_batches


@settings(max_examples=100, deadline=None)
@given(STEPS, st.data())
def test_the_gradient_reaches_each_trained_token_once(steps: list[Any], data: st.DataObject) -> None:
    episode = Episode()
    episode.play(steps)
    names = sorted(call.id for call in episode.calls)
    named = data.draw(st.none() | st.lists(st.sampled_from(names), unique=True)) if names else None
    result = episode.ledger.trained(named)
    if not result.segments:
        return
    rollout = Rollout(prompt_id="p", index=0, segments=result.segments, text="", finish=FinishReason.STOP, turn_lengths=result.turn_lengths)
    group = Group(prompt_id="p", episode=0, prompt_index=0, rollouts=(rollout,), scores=(Score(value=1.0),))
    batch = assemble_batch([group], np.array([1.0]), BatchSettings(max_new_tokens=99)).by_segment()
    # One parameter for each sampled token: its log probability in the ledger, which no other token has.
    parameters = torch.nn.Parameter(torch.zeros(episode.sampled, dtype=torch.float64))
    for rows in plan_micro_batches(batch, rollouts=1, tokens=8, prompts=1):
        micro = collate(batch, rows)
        which = np.rint(-batch.rollout_logprobs[micro.index].astype(np.float64) * 4096).astype(np.int64) - 1
        old = torch.as_tensor(batch.rollout_logprobs[micro.index], dtype=torch.float64)
        logprobs = parameters[torch.as_tensor(which)] + old
        total, _ = PolicyObjective(loss=ClippedSurrogate())(logprobs, micro.loss_batch(logprobs))
        total.backward()
    chosen = {call.id: call for call in episode.calls if call.id in result.calls}
    trained = sorted(round(-float(mark) * 4096) - 1 for call in chosen.values() for mark in call.completion.logprobs)
    assert parameters.grad is not None
    assert np.flatnonzero(parameters.grad.numpy()).tolist() == trained
    np.testing.assert_allclose(parameters.grad.numpy()[trained], -1 / len(trained))  # the mean over the tokens of the rollout
