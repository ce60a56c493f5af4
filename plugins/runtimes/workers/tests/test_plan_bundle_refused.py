"""Workers compare the plugins that they find with the driver's, each of them, before they load anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.producer_worker import ProducerWorker
from rlcore_plugin_workers.trainer_worker import TrainerWorker

from rlcore.api import PluginError
from rlcore.testing import RunTester, make_plan

WORKERS: dict[str, Callable[[PlanBundle], Any]] = {
    "producer producer-0": lambda plan_bundle: ProducerWorker(plan_bundle, "producer-0").prepare(),
    "trainer rank 1": lambda plan_bundle: TrainerWorker(plan_bundle, 1, "127.0.0.1", "cpu").prepare(6, ""),
}


@pytest.fixture
def plan_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanBundle]:
    tester = RunTester(tmp_path).with_fakes()
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        yield PlanBundle.of(make_plan(tester.fake_run()), {})


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_whose_plugin_is_another_than_the_driver_s_refuses_to_start(plan_bundle: PlanBundle, worker: str) -> None:
    *others, last = plan_bundle.attestations
    other = replace(plan_bundle, attestations=(*others, replace(last, version="0.9")))
    said = rf"^{worker} refuses to start: .* {last.name!r} differs between processes: version is '0.9' in the driver and .* on every node$"
    with pytest.raises(PluginError, match=said):
        WORKERS[worker](other)


def test_every_plugin_that_the_run_uses_is_compared(plan_bundle: PlanBundle) -> None:
    kinds = {attestation.kind.value for attestation in plan_bundle.attestations}
    assert {"inference", "training", "reward", "loss", "estimator"} <= kinds, kinds
