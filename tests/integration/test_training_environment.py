"""Trainer ranks in a Python of their own: they train there, attest their plugins, and must read the producers' model before the first step.

`make test-colossalai` builds the environment of ColossalAI and names it in RLCORE_TEST_COLOSSALAI; else the tests of it are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_processes.launcher import ProcessLauncher
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.trainer_worker import TrainerWorker
from rlcore_plugin_workers.workers import Placement

from rlcore.config import RunConfig
from rlcore.config.plugin_selection import unsupported
from rlcore.contracts.errors import PluginError
from rlcore.runtime.loading import fingerprints, load_data, read_texts
from rlcore.testing import RunOutcome, RunTester, make_plan
from rlcore.testing.fake_plugin import FAKE_INFERENCE
from tests.integration.test_local_processes import project, weights_of
from tests.other_environment import other_environment
from tests.worker_hosts import Importer

COLOSSALAI = os.environ.get("RLCORE_TEST_COLOSSALAI", "")
needs_colossalai = pytest.mark.skipif(not COLOSSALAI, reason="needs the environment of ColossalAI: make test-colossalai builds it")
ON_RAY = ("--runtime", "ray")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return other_environment(tmp_path_factory.mktemp("other") / "env")


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    made = ProcessLauncher()
    yield made
    made.close()


def other_model(folder: Path, **sections: Any) -> tuple[RunTester, str]:
    """A project whose trainers compute another model if they are in an environment, and only where sequences are long."""
    return project(folder, training={"name": "faulty", "options": {"fault": "other"}}, **sections)


def assert_refused(outcome: RunOutcome, *words: str) -> None:
    """In one sentence, with exit code 2; the run folder is there by then."""
    assert outcome.exit_code == 2, outcome
    (said,) = [line for line in outcome.stderr.splitlines() if line.strip()]
    assert all(word in said for word in words), said


def test_another_model_in_the_environment_is_refused_before_the_first_step(tmp_path: Path, environment: Path) -> None:
    """If the run asks for no probe, too."""
    tester, config = other_model(tmp_path, weights={"probe": False}, sampling={"max_new_tokens": 64})
    refused = tester.run("train", config, "--training-environment", str(environment))
    assert_refused(
        refused,
        f"trainers in environment {environment} and producers in the driver's environment do not read the same model",
        "differ from the trainer's by 0.1 nats, and 0.001 is allowed",
        "or leave out --training-environment",
    )
    assert not [path for path in tester.folder.rglob("metrics.jsonl") if '"step": 1' in path.read_text(encoding="utf-8")]
    tester.run("train", config).assert_ok()  # the fault is that of the environment


def test_without_an_environment_the_probe_is_as_it_was_asked_for(tmp_path: Path) -> None:
    tester, config = project(tmp_path, weights={"probe": False})
    tester.run("train", config, "--runtime", "local", "-i", "2").assert_ok()


@needs_colossalai
def test_a_rank_in_the_environment_of_colossalai_attests_its_plugins(
    launcher: ProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tester, config = project(tmp_path, run={"runtime": "local"}, inference={"num_inferencer": 2})
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        plan = make_plan(config)
        data = load_data(plan)
        plan_bundle = PlanBundle.of(plan, fingerprints(data, read_texts(plan, data).tokenizer))
        placement = Placement(environment=Path(COLOSSALAI))
        there = launcher.start(Importer, name="trainer rank 0", placement=placement).call("places", "transformers", "colossalai").result(60)
        assert all(place.startswith(COLOSSALAI) for place in (there["transformers"], there["colossalai"])), there
        good = launcher.start(TrainerWorker, plan_bundle, 0, "127.0.0.1", "cpu", name="trainer rank 0", placement=placement)
        assert good.call("prepare", 8, "").result(60) is not None
        last = replace(plan_bundle.attestations[-1], version="0.9")
        changed = replace(plan_bundle, attestations=(*plan_bundle.attestations[:-1], last))
        bad = launcher.start(TrainerWorker, changed, 1, "127.0.0.1", "cpu", name="trainer rank 1", placement=placement)
        with pytest.raises(PluginError, match=r"^trainer rank 1 refuses to start: .* version is '0.9' in the driver"):
            bad.call("prepare", 8, "").result(60)


@needs_colossalai
@pytest.mark.full
@pytest.mark.parametrize("flags", [("--runtime", "local"), ON_RAY], ids=["local", "ray"])
def test_ranks_in_the_environment_of_colossalai_train_the_same(tmp_path: Path, flags: tuple[str, ...]) -> None:
    tester, config = project(tmp_path)
    alone = tester.run("train", config, "--json").assert_ok()
    apart = tester.run("train", config, "--json", "-t", "2", "--training-environment", COLOSSALAI, *flags).assert_ok()
    assert weights_of(tester, apart) == weights_of(tester, alone)


@needs_colossalai
@pytest.mark.full
def test_another_model_there_is_refused_on_ray_too(tmp_path: Path) -> None:
    tester, config = other_model(tmp_path, sampling={"max_new_tokens": 64})
    refused = tester.run("train", config, "--training-environment", COLOSSALAI, *ON_RAY)
    assert_refused(refused, f"trainers in environment {COLOSSALAI}", "do not read the same model")


def test_an_engine_that_cannot_score_is_refused_beside_trainers_in_an_environment() -> None:
    offered = replace(FAKE_INFERENCE, scores=False)
    apart = RunConfig.model_validate({"training": {"environment": "env"}})
    said = unsupported(offered, "mine", apart, lambda path: path) or ""
    assert said.startswith("training.environment gives trainers their own libraries, and inference backend mine cannot show")
    assert unsupported(offered, "mine", RunConfig.model_validate({}), lambda path: path) is None
