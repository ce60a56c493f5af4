"""What a run asks of a training backend is held against what the backend declares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlcore.contracts.errors import ConfigError
from rlcore.contracts.interfaces import InferenceCapabilities, InFlight, OptimizerSettings, TrainingCapabilities, TrainingContext
from rlcore.runtime.backends import check_training, inference_notes


def check(layouts: set[str], **asked: int) -> None:
    class Backend:
        capabilities = TrainingCapabilities(layouts=frozenset({"single", *layouts}))

    optimizer = OptimizerSettings(learning_rate=1e-3)
    context = TrainingContext(
        model="m", optimizer=optimizer, rollouts_per_forward=1, tokens_per_forward=1, prompts_per_slice=1, device="cpu", **asked
    )
    check_training(Backend, context, "mine")


def test_data_parallel_ranks_need_the_layout() -> None:
    check({"data"}, world_size=4)
    with pytest.raises(ConfigError, match=r"no layout 'data' \(it has single\), and -t 4 asks for 4 data-parallel ranks; use -t 1"):
        check(set(), world_size=4)


def test_ranks_that_hold_one_replica_together_are_not_data_parallel() -> None:
    check({"tensor", "pipeline"}, world_size=4, tensor_parallel=2, pipeline_parallel=2)
    with pytest.raises(ConfigError, match=r"-t 8 asks for 2 data-parallel ranks; use -t 4"):
        check({"tensor", "pipeline"}, world_size=8, tensor_parallel=2, pipeline_parallel=2)


def test_an_engine_that_cannot_score_is_said_to_go_without_the_probe_where_one_is_wanted() -> None:
    def notes(*, scores: bool, probe: bool) -> list[str]:
        engine: Any = SimpleNamespace(capabilities=InferenceCapabilities(in_flight=InFlight.RESUME, scores=scores))
        return inference_notes(engine, "mine", probe=probe)

    assert notes(scores=True, probe=True) == notes(scores=False, probe=False) == []
    assert "inference backend mine cannot score" in notes(scores=False, probe=True)[0]


def test_other_layouts_are_named_by_their_flag() -> None:
    with pytest.raises(ConfigError, match=r"no layout 'tensor' .* leave -tp at its default"):
        check({"data"}, world_size=2, tensor_parallel=2)
