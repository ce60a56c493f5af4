"""The objective of several sources: whatever the division of a batch, its shares add up; each loss sees its own source alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlcore.api import Loss, LossBatch, Need, RunError, TrainBatch
from rlcore.learning import BatchSettings, PolicyObjective, assemble_batch, collate, split
from rlcore.learning.aggregation import SampleLevel, TokenLevel
from rlcore.learning.mixed_objective import MixedObjective
from tests.sources_by_hand import MASKED, make_groups, mixed_algorithm

NAMES = ("math", "talk")
SETTINGS = [BatchSettings(max_new_tokens=9, variation=TokenLevel()), BatchSettings(max_new_tokens=9, variation=SampleLevel())]


def prepared(seed: int = 0) -> TrainBatch:
    mixed, groups, draw = mixed_algorithm(), make_groups(50), np.random.default_rng(seed)
    batch = mixed.assemble(groups, MASKED, 1)
    old, reference = draw.normal(-3, 0.5, (2, len(batch.advantages))).astype(np.float32)
    batch = replace(batch, old_logprobs=old, reference_logprobs=reference)
    return mixed.prepare(replace(batch, advantages=mixed.advantages(groups, MASKED, batch)))


BATCH = prepared()
NOW = BATCH.old_logprobs + np.random.default_rng(9).normal(0, 0.5, len(BATCH.advantages))


def summed(batch: TrainBatch, parts: list[np.ndarray]) -> tuple[torch.Tensor, dict[str, float]]:
    """The gradient by the log probabilities, and the metrics, summed over the parts."""
    logprobs, metrics = torch.tensor(NOW, dtype=torch.float64, requires_grad=True), dict[str, float]()
    for rows in parts:
        micro = collate(batch, rows)
        mine = logprobs[torch.from_numpy(micro.index)]
        loss, figures = mixed_algorithm().objective(mine, micro.loss_batch(mine))
        loss.backward()
        for name, value in figures.items():
            metrics[name] = metrics.get(name, 0.0) + float(value)
    assert logprobs.grad is not None
    return logprobs.grad, metrics


TRAINED = np.flatnonzero(BATCH.in_loss)
WHOLE = summed(BATCH, [TRAINED])


@given(st.lists(st.integers(0, 5), min_size=len(TRAINED), max_size=len(TRAINED)), st.permutations(TRAINED.tolist()))
def test_any_division_adds_up_to_the_whole(owner: list[int], order: list[int]) -> None:
    parts = [np.array(order)[np.array(owner) == number] for number in range(6)]
    gradient, metrics = summed(BATCH, [part for part in parts if len(part)])
    assert float((gradient - WHOLE[0]).norm()) <= 1e-12 * float(WHOLE[0].norm())
    assert metrics == pytest.approx(WHOLE[1], rel=1e-9, abs=1e-12)


@given(st.integers(1, 9), st.sets(st.integers(0, 7)), st.integers(0, 99))
def test_the_weights_of_a_source_add_up_to_its_share_of_the_groups(updates: int, masked: set[int], version: int) -> None:
    """In every step; masked groups count, and a source that does not train in a step leaves its share to nobody."""
    groups = make_groups(50)
    batch = assemble_batch(groups, None, SETTINGS, masked=masked, version=version)
    parts = split(batch, SETTINGS, updates=updates)
    assert sorted(place for part in parts for place in set(part.group.tolist())) == list(range(8))
    for part in parts:
        assert part.source is not None
        places = set(part.group.tolist())
        for source in (0, 1):
            share = sum(groups[place].source_index == source for place in places) / len(places)
            trains = bool((part.in_loss & (part.source == source)).any())
            own = part.weights[np.repeat(part.source == source, part.lengths)].astype(np.float64)
            assert own.sum() == pytest.approx(share * trains, rel=1e-5)


class Recording(Loss):
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[LossBatch] = []

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        self.seen.append(batch)
        return -logprobs * batch.advantages


def loss_batch(**changes: object) -> tuple[torch.Tensor, LossBatch]:
    """All that trains, rows in turns of the sources."""
    micro = collate(BATCH, TRAINED)
    logprobs = torch.tensor(NOW[micro.index], requires_grad=True)
    made = replace(micro.loss_batch(logprobs), **changes)  # type: ignore[arg-type]
    return logprobs, made


def test_a_loss_sees_the_rows_of_its_source_alone() -> None:
    losses = Recording(), Recording()
    objective = MixedObjective(NAMES, [PolicyObjective(loss=loss) for loss in losses])
    logprobs, batch = loss_batch()
    objective(logprobs, batch)
    rows = np.flatnonzero(BATCH.in_loss)
    assert BATCH.source is not None
    for source, loss in enumerate(losses):
        (seen,) = loss.seen
        own = rows[BATCH.source[rows] == source]
        assert seen.lengths.tolist() == BATCH.lengths[own].tolist()
        assert seen.row.tolist() == np.repeat(np.arange(len(own)), BATCH.lengths[own]).tolist()
        assert seen.advantages.tolist() == BATCH.take(own).advantages.tolist()
        assert list(seen.extras) == ["held"]
        assert seen.normalisers == BATCH.normalisers.sources[source]
        assert seen.source is None


def test_a_micro_batch_of_one_source_has_the_figures_of_that_source_alone() -> None:
    rows = TRAINED[BATCH.source[TRAINED] == 1]  # type: ignore[index]
    _, metrics = summed(BATCH, [rows])
    assert {name.split("/")[1] for name in metrics if name.startswith("source/")} == {"talk"}


@pytest.mark.parametrize("lost", ["source", "normalisers"])
def test_a_backend_that_loses_the_source_is_refused(lost: str) -> None:
    logprobs, batch = loss_batch(**{lost: None})
    with pytest.raises(RunError, match="a training backend that builds its own LossBatch must set source and normalisers"):
        mixed_algorithm().objective(logprobs, batch)


def test_an_error_names_the_source() -> None:
    class Broken(Loss):
        def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
            raise ZeroDivisionError("planted")

    objective = MixedObjective(NAMES, [PolicyObjective(loss=Recording()), PolicyObjective(loss=Broken(), name="mine")])
    with pytest.raises(RunError, match="source 'talk': loss 'mine' failed in per_token: ZeroDivisionError: planted"):
        objective(*loss_batch())


def test_it_needs_what_any_source_needs() -> None:
    objective = MixedObjective(
        NAMES, [PolicyObjective(loss=Recording(), kl_coeff=0.1), PolicyObjective(loss=Recording(), entropy_coeff=0.1)]
    )
    assert objective.needs == {Need.REFERENCE, Need.ENTROPY}


def test_a_micro_batch_without_tokens_gives_zero_and_can_go_backward() -> None:
    logprobs, batch = loss_batch()
    nothing = torch.zeros(len(logprobs), dtype=torch.bool)
    held = {name: getattr(batch, name)[nothing] for name in ("row", "advantages", "old_logprobs", "rollout_logprobs", "weights", "source")}
    total, _ = mixed_algorithm().objective(logprobs[nothing], replace(batch, **held, lengths=batch.lengths[:0], extras={}))
    total.backward()
    assert float(total.detach()) == 0.0
    assert logprobs.grad is not None
    assert not logprobs.grad.any()
