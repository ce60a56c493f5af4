"""Chosen optimizers of the torch backend: each layout steps as one process does, and a checkpoint is read by any of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_optimizer_bodies as bodies
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.host_memory import HostMoments
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.muon import Muon
from rlcore_plugin_torch.options import TorchOptions
from starting import started
from test_torch_layouts import SIZES, check_same, difference, tiny
from transformers import Qwen3Config

from rlcore.api import LoraSettings, OptimizerFactory, OptimizerSettings, PluginError, RlcoreError, RunError, TrainingContext
from rlcore.testing import OptimizerSuite
from rlcore.testing.algorithms.fake_optimizer import FakeOptimizer
from rlcore.testing.training.chosen_optimizer_rules import Noting
from rlcore.testing.training.rank_processes import run_ranks

LAYOUTS = {
    "fsdp2, zero 3": Layout(size=2, zero=3),
    "fsdp2, zero 2": Layout(size=2, zero=2),
    "ddp2": Layout(size=2),
    "tp2": Layout(size=2, tensor=2),
}
MESHES = {"2-D, zero 3": Layout(size=4, tensor=2, zero=3)}
DAILY = ("fsdp2, zero 3", "tp2")
CASES = [pytest.param(name, marks=pytest.mark.full if name in DAILY else pytest.mark.nightly) for name in (*LAYOUTS, *MESHES)]
CLOSE = 1e-6
"""Of the distance that the weights moved, in float64."""


class TestMuon(OptimizerSuite):
    def make(self) -> Muon:
        return Muon()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny(tmp_path_factory.mktemp("model"), Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=False))


@pytest.fixture(scope="module")
def alone(model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What one process does, and its folder."""
    folder = str(tmp_path_factory.mktemp("alone"))
    return bodies.run(0, 1, "", Layout(), model, folder, list(bodies.CHOSEN)), folder


@pytest.mark.parametrize("case", bodies.CHOSEN)
def test_a_resumed_trainer_steps_on_with_the_same_bits(case: str, alone: tuple[dict[str, Any], str]) -> None:
    straight = alone[0][case]
    assert straight["resumed"]["metrics"] == straight["metrics"][bodies.SAVED_AFTER :]
    check_same(straight["resumed"]["after"], straight["after"])
    rates = [metrics["learning_rate"] for metrics in straight["metrics"]]
    assert rates == pytest.approx([0.02, 0.02, 0.02, 0.011]), "the course of wsd"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_a_layout_steps_as_one_process(name: str, model: str, alone: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    """Also if it resumes from the checkpoint of one process, and one process from its checkpoint."""
    layout, cases = {**LAYOUTS, **MESHES}[name], list(bodies.CHOSEN)
    ranks = run_ranks("torch_optimizer_bodies:run", layout.size, layout, model, str(tmp_path), cases, timeout=500.0)
    for answer in ranks:
        assert not isinstance(answer, RlcoreError), answer
    back = bodies.resume(0, 1, "", Layout(), str(tmp_path), cases)
    for case, one in alone[0].items():
        moved = difference(one["after"], one["before"])
        assert moved > 1e-3
        for rank, answer in enumerate(ranks):
            found = answer[case]
            assert difference(found["after"], one["after"]) <= CLOSE * moved, (case, rank)
            for mine, theirs in zip(found["metrics"], one["metrics"], strict=True):
                assert mine == pytest.approx(theirs, rel=CLOSE, abs=CLOSE)
            check_same(found["resumed"]["after"], found["after"])
            if layout.split and case != "factored":
                assert found["held"] < 0.8 * one["held"], "a rank holds its part of the state alone"
        assert difference(back[case]["after"], one["after"]) <= CLOSE * moved, case


@pytest.mark.full
@pytest.mark.timeout(600)
def test_two_ranks_resume_from_one_process(alone: tuple[dict[str, Any], str]) -> None:
    ranks = run_ranks("torch_optimizer_bodies:resume", 2, LAYOUTS["fsdp2, zero 3"], alone[1], list(bodies.CHOSEN), timeout=400.0)
    for answer in ranks:
        assert not isinstance(answer, RlcoreError), answer
        for case, one in alone[0].items():
            moved = difference(one["after"], one["before"])
            assert difference(answer[case]["after"], one["after"]) <= CLOSE * moved, case
            assert all(np.isfinite(weight).all() for weight in answer[case]["after"].values())


class Bad(FakeOptimizer):
    def __init__(self, change: Callable[[dict[str, torch.nn.Parameter]], Any]) -> None:
        super().__init__()
        self.change = change

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        found: Sequence[torch.optim.Optimizer] = self.change(dict(parameters))
        return found


class Counts(torch.optim.SGD):
    """Keeps a count where no checkpoint looks."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.param_groups[0]["count"] = self.param_groups[0].get("count", 0) + 1


class Lists(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.state[self.param_groups[0]["params"][0]]["seen"] = [1.0]


def without_norm(parameters: dict[str, torch.nn.Parameter]) -> Sequence[torch.optim.Optimizer]:
    del parameters["model.norm.weight"]
    return [torch.optim.SGD(parameters.values())]


def twice(parameters: dict[str, torch.nn.Parameter]) -> Sequence[torch.optim.Optimizer]:
    return [torch.optim.SGD(parameters.values()), torch.optim.SGD([parameters["lm_head.weight"]])]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without_norm, "optimizer Bad: parameter 'model.norm.weight' is in no param group; build() must put each parameter"),
        (twice, "optimizer Bad: parameter 'lm_head.weight' is in 2 param groups"),
        (lambda parameters: [torch.optim.SGD([*parameters.values(), torch.zeros(2)])], "holds a tensor that is not a parameter"),
        (lambda parameters: [3], "build() returned a int; it must return a list of torch.optim.Optimizer"),
        (lambda parameters: 1 / 0, "optimizer Bad failed in build(): ZeroDivisionError"),
    ],
)
def test_a_factory_that_does_not_keep_the_contract_is_refused(change: Any, says: str, model: str) -> None:
    with pytest.raises(PluginError, match=re.escape(says)):
        started(with_optimizer(model, Bad(change)))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Counts, "optimizer Counts changed 'count' of a param group, which is not saved"),
        (Lists, "state 'seen' is a list, which a checkpoint does not hold"),
    ],
)
def test_state_that_would_be_lost_is_told(kind: type[torch.optim.SGD], says: str, model: str, tmp_path: Path) -> None:
    backend = started(with_optimizer(model, Bad(lambda parameters: [kind(parameters.values())])))

    def step_and_save() -> None:
        bodies.stepped(backend, range(1))
        backend.save(tmp_path)

    with pytest.raises(PluginError, match=re.escape(says)):
        step_and_save()


def test_another_optimizer_does_not_read_the_state(model: str, tmp_path: Path) -> None:
    backend = started(with_optimizer(model, FakeOptimizer()))
    bodies.stepped(backend, range(1))
    backend.save_model(tmp_path)
    backend.save(tmp_path / "trainer").result()
    other = started(with_optimizer(str(tmp_path), Muon()))
    with pytest.raises(RunError, match="the saved optimizer state is of FakeOptimizer, and this run steps with Muon; type --optimizer"):
        other.load(tmp_path / "trainer")


@pytest.mark.parametrize("optimizer", [Muon(), FakeOptimizer()])
def test_state_in_host_memory_gives_the_same_steps(optimizer: OptimizerFactory, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One parameter at a time, as with ``offload``, and asleep between two steps."""
    monkeypatch.setattr("rlcore_plugin_torch.optimizer.HostMoments", lambda one: HostMoments(one, portion=1))
    plain, context = started(with_optimizer(model, optimizer)), with_optimizer(model, optimizer)
    streamed = TorchBackend(context, TorchOptions(threads=1, offload=("optimizer",)))
    streamed.setup(context)
    for backend in (plain, streamed):
        bodies.stepped(backend, range(1))
        backend.sleep()
        backend.wake()
        bodies.stepped(backend, range(1, 3))
    check_same(bodies.weights_of(streamed), bodies.weights_of(plain))


def test_embeddings_and_head_are_named_as_tables(model: str) -> None:
    noting = Noting()
    started(with_optimizer(model, noting))
    assert noting.tables == {"model.embed_tokens.weight", "lm_head.weight"} < set(noting.names)
    started(replace(with_optimizer(model, noting), lora=LoraSettings(rank=2, alpha=4.0)))
    assert noting.tables == set()
    assert noting.names
    assert all("lora_" in name for name in noting.names)


def with_optimizer(model: str, optimizer: OptimizerFactory) -> TrainingContext:
    context = bodies.contexts(0, Layout(), "", model, "muon")
    return replace(context, dtype="float32", optimizer=replace(context.optimizer, optimizer=optimizer))
