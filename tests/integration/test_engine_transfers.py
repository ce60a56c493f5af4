"""Engines that join a transfer of their own, in real processes: the same weights, replacements for members that die or stop, refusals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.ray.faults import BackgroundRun
from tests.integration.test_local_processes import children, project, weights_of

TENSOR = {"name": "fake-tensor", "producer_tensor_parallel_size": 2}
DEADLINE = 2.0
STEPS = 30
JOINING = {"name": "fake-joining", "producer_tensor_parallel_size": 2}


def test_workers_that_join_the_transfer_train_what_shared_memory_trains(tmp_path: Path) -> None:
    """Two engines of two processes each; chosen by the engine's capabilities, or typed; one engine gets a process for it, too."""
    tester, config = project(tmp_path, run={"num_episodes": 4, "max_steps": 6, "runtime": "local"}, inference=TENSOR)
    shared = weights_of(tester, tester.run("train", config, "--json", "-i", "2").assert_ok())
    typed = tester.run("train", config, "--json", "-i", "2", "--transport", "fake_collective").assert_ok()
    assert weights_of(tester, typed) == shared
    config = tester.fake_run(run={"num_episodes": 4, "max_steps": 6, "runtime": "local"}, inference=JOINING)
    for several in ("1", "2"):
        assert weights_of(tester, tester.run("train", config, "--json", "-i", several).assert_ok()) == shared


STOPPING = """
import os
import signal
from dataclasses import replace
from pathlib import Path

from rlcore.api import hookimpl
from rlcore.testing import fake_plugin
from rlcore.testing.inference.fake_tensor_parallel import FakeJoining

rlcore_api = "2.0"


class Stopping(FakeJoining):
    def __init__(self, context, options):
        super().__init__(context, options)
        self.stops = context.producer == 0 and not Path("stopped").exists()

    def begin_update(self, version, *more):
        super().begin_update(version, *more)
        if self.stops and version >= 3:  # a producer may skip a version
            Path("stopped").touch()
            os.kill(os.getpid(), signal.SIGSTOP)


@hookimpl
def rlcore_register_inference_backends():
    (joining,) = (spec for spec in fake_plugin.rlcore_register_inference_backends() if spec.name == "fake-joining")
    return [replace(joining, name="stopping", target=f"{__name__}:Stopping")]
"""
"""The first process of producer-0 is stopped in the middle of a transfer. One that is stopped between two holds prompts that the trainer
waits for, so no version comes that the transfer could miss it in."""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_member_that_dies_or_stops_is_replaced_and_the_group_built_anew(tmp_path: Path, number: signal.Signals) -> None:
    """The run itself would wait far longer for a producer: it is the transfer that gives one up which stands still."""
    stops = number is signal.SIGSTOP
    tester, config = project(
        tmp_path,
        run={"num_episodes": STEPS // 2, "max_steps": STEPS, "runtime": "local"},
        inference={**JOINING, "name": "stopping" if stops else "fake-joining", "num_inferencer": 2},
        schedule={"max_staleness": 1, "producer_deadline": 60.0},
        weights={"deadline": DEADLINE},
    )
    tester.plugins.install("stopping", STOPPING)
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(1)
        (lost,) = [pid for pid, said in children(run.process.pid).items() if '"producer-0"' in said]
        if not stops:
            os.kill(lost, number)
        outcome = run.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.summary["ledger"]["trained"] == STEPS * 3
    assert "warning: producer-0 was lost (" in str(outcome)
    assert "producer-0.1 takes its place" in str(outcome)
    if stops:
        assert f"warning: producer-0 was lost (producer producer-0 (process {lost}) " in str(outcome)
        assert " for 2 s, so it was ended; look whether it was stopped or overloaded" in str(outcome)


def test_what_engine_and_transfer_do_not_have_in_common_is_refused(tmp_path: Path) -> None:
    tester, config = project(tmp_path, run={"runtime": "local"}, inference={"num_inferencer": 2})
    tester.run("train", config, "--dry-run", "--transport", "fake_collective").assert_refused(
        "--transport fake_collective delivers weights by fake_collective, and inference backend fake accepts them by host",
        "name a --transport that does so",
    )
    tester.run("train", config, "--dry-run", "-b", "fake-joining", "--transport", "shared").assert_refused(
        "--transport shared delivers weights by host, and inference backend fake-joining accepts them by fake_collective"
    )
    chosen = tester.run("train", config, "--dry-run", "-b", "fake-joining").assert_ok()
    said = "producers and trainers are processes of this host, and fake-joining accepts weights by fake_collective"
    assert f"weights.transport = fake_collective ({said})" in chosen.stdout
