"""The class of a backend is held against its spec, and against what a run asks of it, before it is made."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlcore.config import Plan, plan_run
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.specs import InferenceBackendSpec, InferenceCapabilities, InFlight, PluginKind, TrainingBackendSpec
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime.backends import check_backend, inference_notes
from rlcore.testing import FakeInference, FakeTraining, RunTester
from rlcore.testing.fake_plugin import FAKE_INFERENCE, FAKE_TRAINING


class Sleepless(FakeInference):
    """Keeps its device."""

    capabilities = replace(FAKE_INFERENCE, sleeps=False)


class Undeclared(FakeTraining):
    """Says nothing of what it can do."""

    capabilities: Any = None


def plan(tmp_path: Path, *specs: tuple[str, Any], **sections: dict[str, Any]) -> Plan:
    tester = RunTester(tmp_path).with_fakes()
    with tester.plugins:
        registry = Registry.discover()
        for kind, spec in specs:
            registry.add(kind, spec)
        return plan_run([Path(tester.fake_run(**sections))], {}, registry)


def test_a_class_that_declares_other_capabilities_than_its_spec_is_blamed_on_its_plugin(tmp_path: Path) -> None:
    target, summary = f"{__name__}:Sleepless", "s"
    spec = InferenceBackendSpec(name="lying", target=target, summary=summary, tokenizer="rlcore.testing:load_fake_tokenizer")
    for declared, refused in ((None, ""), (Sleepless.capabilities, ""), (FAKE_INFERENCE, "sleeps")):
        found = plan(tmp_path, ("inference", replace(spec, capabilities=declared)), inference={"name": "lying"})
        if not refused:
            check_backend(found, PluginKind.INFERENCE, "lying")
            continue
        with pytest.raises(
            PluginError, match=rf"inference backend 'lying' of python: capabilities\.{refused} is False on its class and True in its spec"
        ):
            check_backend(found, PluginKind.INFERENCE, "lying")


def test_a_class_without_capabilities_is_refused(tmp_path: Path) -> None:
    found = plan(
        tmp_path, ("training", TrainingBackendSpec(name="mute", target=f"{__name__}:Undeclared", summary="s")), training={"name": "mute"}
    )
    with pytest.raises(PluginError, match="training backend 'mute' of python declares no TrainingCapabilities"):
        check_backend(found, PluginKind.TRAINING, "mute")


def test_the_class_refuses_what_a_spec_without_capabilities_let_pass(tmp_path: Path) -> None:
    spec = TrainingBackendSpec(name="quiet", target="rlcore.testing.training.fake_training:FakeTraining", summary="s")
    found = plan(tmp_path, ("training", spec), training={"name": "quiet", "dtype": "bfloat16"})
    assert "the spec of backend quiet declares no capabilities, so its limits are known only when it is built" in found.notes
    with pytest.raises(
        ConfigError, match=r"dtype = bfloat16 \(.*run\.toml\): training backend quiet does not offer it; type --training-dtype"
    ):
        check_backend(found, PluginKind.TRAINING, "quiet")


def test_a_class_that_is_no_plugin_yet_is_planned_by_its_own_capabilities(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="inference backend sleepless never gives its device back"):
        plan(
            tmp_path,
            ("inference", Sleepless),
            inference={"name": "sleepless"},
            run={"placement": "colocated"},
            model={"tokenizer_path": "."},
        )


def test_capabilities_are_attested_alike_in_processes_that_order_sets_otherwise(tmp_path: Path) -> None:
    code = "from rlcore.registry.plugin_registry import Registry; print(Registry.discover().attest('training', 'fake').spec_sha256)"
    tester = RunTester(tmp_path).with_fakes()
    tester.write("attest.py", code)
    hashes = {_output(tester, seed) for seed in ("1", "2", "3", "4")}
    assert len(hashes) == 1
    with tester.plugins:
        registry = Registry.discover()
        other = replace(registry.spec("training", "fake"), capabilities=replace(FAKE_TRAINING, dtypes=frozenset({"bfloat16"})))
        registry.add("training", other, "changed")
        registry.add("training", registry.spec("training", "fake"), "same")
        assert registry.attest("training", "changed").spec_sha256 != registry.attest("training", "same").spec_sha256


def _output(tester: RunTester, seed: str) -> str:
    environment = {**tester.plugins.environment, "PYTHONHASHSEED": seed}
    command = [sys.executable, str(tester.folder / "attest.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_an_engine_that_cannot_score_is_said_to_go_without_the_probe_where_one_is_wanted() -> None:
    def notes(*, scores: bool, probe: bool) -> list[str]:
        engine: Any = SimpleNamespace(capabilities=InferenceCapabilities(in_flight=InFlight.RESUME, scores=scores))
        return inference_notes(engine, "mine", probe=probe)

    assert notes(scores=True, probe=True) == notes(scores=False, probe=False) == []
    assert "inference backend mine cannot score" in notes(scores=False, probe=True)[0]
