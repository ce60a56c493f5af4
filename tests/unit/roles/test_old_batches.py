"""A batch whose tokens are all too old takes no optimizer step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from rlcore.api import Group, Score, Segment
from rlcore.learning import BatchSettings, assemble_batch
from rlcore.roles.algorithm import Algorithm
from rlcore.testing import make_rollout


def batch_of(version: int, settings: BatchSettings) -> Any:
    made = make_rollout([1], [2, 3])
    old = Segment(
        context_ids=np.array([1]), token_ids=np.array([2, 3]), logprobs=np.zeros(2), versions=np.array([1, 2]), policy_mask=np.ones(2)
    )
    rollouts = tuple(type(made)(prompt_id="p", index=index, segments=(old,), text="", finish=made.finish) for index in range(2))
    group = Group(prompt_id="p", episode=0, prompt_index=0, rollouts=rollouts, scores=(Score(value=1.0), Score(value=0.0)))
    return assemble_batch([group], None, settings, version=version)


def test_no_step_is_taken_if_nothing_is_young_enough() -> None:
    settings = BatchSettings(max_new_tokens=8, max_staleness=2)
    algorithm: Any = SimpleNamespace(batch=settings, updates_per_batch=1, epochs_per_batch=1)
    steps = {version: len(Algorithm.steps(algorithm, batch_of(version, settings))) for version in (3, 4, 5)}
    assert steps == {3: 1, 4: 1, 5: 0}
