"""An episode of many long segments: several forwards, each within the bound, and the update of one forward, in each backend of the core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_torch import passes
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.packing import pack
from tiny_producer import save_tiny_qwen2

from rlcore.api import FinishReason, Group, Need, OptimizerSettings, Rollout, Score, Segment, TrainingBackend, TrainingContext
from rlcore.learning import BatchSettings, ClippedSurrogate, PolicyObjective, collate
from rlcore.learning.advantages import GroupMean
from rlcore.roles.algorithm import Algorithm
from rlcore.roles.consumer import Consumer
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeTraining, write_fake_model
from rlcore.testing.training import fake_pipeline
from rlcore.testing.training.fake_pipeline import FakePipeline

SEGMENTS, CONTEXT, TOKENS = 6, 30, 10
BOUND = 2 * (CONTEXT + TOKENS)
VOCABULARY = 11


def episodes() -> list[Group]:
    """Two groups: an episode of six branches beside one of a single answer. The policy wrote about half of each branch."""
    rng = np.random.default_rng(3)

    def segment() -> Segment:
        mask = rng.random(TOKENS) < 0.5
        mask[0] = True
        ids = rng.integers(5, VOCABULARY, CONTEXT + TOKENS)
        logprobs = -rng.uniform(1.0, 3.0, TOKENS)
        return Segment(context_ids=ids[:CONTEXT], token_ids=ids[CONTEXT:], logprobs=logprobs, versions=np.zeros(TOKENS), policy_mask=mask)

    groups = []
    for place in range(2):
        rollouts = tuple(
            Rollout(prompt_id=f"p{place}", index=index, segments=tuple(segment() for _ in range(count)), text="", finish=FinishReason.STOP)
            for index, count in enumerate((SEGMENTS, 1))
        )
        scores = (Score(value=1.0), Score(value=0.0))
        groups.append(Group(prompt_id=f"p{place}", episode=0, prompt_index=place, rollouts=rollouts, scores=scores))
    return groups


def context(model: str, tokens: int) -> TrainingContext:
    return TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=0.01),
        rollouts_per_forward=64,
        tokens_per_forward=tokens,
        prompts_per_slice=9,
        needs=frozenset({Need.REFERENCE}),
        device="cpu",
    )


def made(backend: TrainingBackend, model: str, tokens: int, **changes: Any) -> Consumer:
    backend.setup(context(model, tokens))
    objective = PolicyObjective(loss=ClippedSurrogate(), kl_coeff=0.1)
    algorithm = Algorithm(
        estimator_name="group_mean",
        estimator=GroupMean(),
        loss_name="clipped",
        loss=objective.loss,
        objective=objective,
        whole_rollouts=objective.whole_rollouts,
        batch=BatchSettings(max_new_tokens=99),
        seed=0,
        epochs_per_batch=2,
    )
    return Consumer(backend, replace(algorithm, **changes), TimeAccount())


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_qwen2(tmp_path_factory.mktemp("qwen2"))


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each forward, padding included."""
    seen: list[int] = []

    def counting(make: Any) -> Any:
        def counted(*given: Any, **options: Any) -> Any:
            micro = make(*given, **options)
            seen.append(micro.input_ids.numel())
            return micro

        return counted

    for module, make in ((passes, collate), (passes, pack), (fake_pipeline, collate)):
        monkeypatch.setattr(module, make.__name__, counting(make))
    return seen


def probed(backend: TrainingBackend) -> np.ndarray:
    return backend.probe(np.random.default_rng(0).integers(5, VOCABULARY, 200))


BACKENDS = {
    "torch": lambda: TorchBackend(options=TorchOptions(packing="off")),
    "torch, packed": lambda: TorchBackend(options=TorchOptions(packing="on")),
    "two stages": FakePipeline,
    "numpy": FakeTraining,
}


@pytest.mark.parametrize("name", BACKENDS)
def test_an_update_in_small_forwards_is_the_update_of_whole_rollouts(name: str, qwen: str, tmp_path: Path, forwards: list[int]) -> None:
    """Log probabilities of the old policy and the reference, two optimizer steps, and the weights after them."""
    model = qwen if name.startswith("torch") else str(write_fake_model(tmp_path, "abcdef"))
    ends, told = [], []
    for tokens, together in ((10_000, True), (BOUND, False)):
        forwards.clear()
        backend = BACKENDS[name]()
        consumer = made(backend, model, tokens, whole_rollouts=together)
        begun = probed(backend)
        told.append(consumer.update(episodes(), (), 0))
        ends.append(probed(backend))
        assert float(np.abs(ends[-1] - begun).max()) > 1e-2
        assert name == "numpy" or (max(forwards) > 3 * BOUND if together else max(forwards) <= BOUND)
        assert name == "numpy" or together or len(forwards) >= 4 * (SEGMENTS + 1)  # 14 segments, for reference, old policy and two steps
    assert float(np.abs(ends[0] - ends[1]).max()) < 1e-4
    for figure in {"loss", "grad_norm", "kl_old", "kl_reference", "rollouts_in_loss", "tokens"} & set(told[0]):
        assert told[1][figure] == pytest.approx(told[0][figure], rel=1e-3, abs=1e-6), figure
