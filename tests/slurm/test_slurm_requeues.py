"""``rlcore launch slurm`` on a real Slurm: whatever takes the nodes from a job, it goes on in the same run folder, to the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from rlcore.testing.policy import FakePolicy
from tests.integration.ray.faults import fault_run
from tests.slurm.small_slurm import NODES, PATIENCE, SmallSlurm, until

pytestmark = [pytest.mark.nightly, pytest.mark.serial, pytest.mark.timeout(3 * PATIENCE)]

EPISODES = 100
STEPS = 2 * EPISODES
MACHINES = ("--nodes", "2", "--gpus-per-node", "0", "--cpus-per-node", "4")


class BatchRun:
    """A run as a job on both nodes, from ``rlcore launch slurm --submit``, and the same run that nobody interrupts."""

    def __init__(self, slurm: SmallSlurm, tester: RunTester, *flags: str) -> None:
        self.slurm = slurm
        self.tester = tester
        self.whole = _uninterrupted(tester)
        config = _config(tester)
        submitted = tester.run("launch", "slurm", config, "-t", "1", "-i", "1", *MACHINES, *flags, "--submit").assert_ok()
        self.job = int(submitted.lines[-1].split()[-1])

    @property
    def output(self) -> str:
        """What the job has written, in all its lives."""
        files = list(self.tester.folder.glob(f"*-{self.job}.out"))
        return files[0].read_text(errors="replace") if files else ""

    @property
    def folder(self) -> Path:
        """The one run folder."""
        (folder,) = (self.tester.folder / "runs").glob("*/*")
        return folder

    @property
    def steps(self) -> list[int]:
        """The updates in its metrics."""
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [row["step"] for row in rows if "reward/mean" in row]

    def reach(self, step: int) -> None:
        """Wait until it has reported this update."""
        until(lambda: f"\nstep {step}/" in self.output or self.over, lambda: self.output + self.slurm.state(), PATIENCE)
        assert not self.over, self.output

    @property
    def over(self) -> bool:
        """Whether Slurm will not start it again."""
        return self.slurm.job(self.job)["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")

    def ends_as_the_other(self, *, lives: int) -> None:
        """It comes to its end; no update is missing or doubled, and the weights have the bits of the run that nobody interrupted."""
        until(lambda: self.over, lambda: self.output + self.slurm.state(), PATIENCE)
        ended = self.slurm.job(self.job)
        assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("COMPLETED", "0:0", str(lives - 1)), self.output
        assert self.steps == list(range(1, STEPS + 1)), self.output
        assert _weights(self.folder) == self.whole


def _config(tester: RunTester, seconds: float = 0.1) -> str:
    sections = {"schedule": {"max_staleness": 0}, "log": {"save_interval": 4}, "inference": {"options": {"seconds": seconds}}}
    return fault_run(tester, EPISODES, **sections)


def _uninterrupted(tester: RunTester) -> bytes:
    """The weights after the last update of a run of the same settings in one process, in a folder of its own."""
    other = RunTester(tester.folder.parent / "whole").with_fakes()
    other.plugins.install("slow", (tester.plugins.root / "rlcore_plugin_slow" / "__init__.py").read_text())
    other.run("train", _config(other, 0.0), "--runtime", "local", "-t", "1", "-i", "1").assert_ok()
    (folder,) = (other.folder / "runs").glob("*/*")
    return _weights(folder)


def _weights(run: Path) -> bytes:
    policy = FakePolicy.load(run / "checkpoints" / f"step-{STEPS}" / "model")
    return bytes(policy.last.tobytes() + policy.pair.tobytes())


@pytest.mark.parametrize("slurm", ["idle_on_node_suspend", "preempt_send_user_signal"], indirect=True)
def test_a_preempted_job_saves_in_its_grace_time_and_ends_with_the_same_bits(slurm: SmallSlurm, tester: RunTester) -> None:
    run = BatchRun(slurm, tester, "--partition", "graceful")
    run.reach(9)
    slurm.preempt(run.job)
    assert "Stopped early, and saved." in run.output
    last = run.steps[-1]
    slurm.start_now(run.job)
    run.ends_as_the_other(lives=2)
    assert f"resumes after update {last}, from" in run.output


def test_a_job_that_gets_no_grace_time_goes_on_from_its_last_checkpoint(slurm: SmallSlurm, tester: RunTester) -> None:
    run = BatchRun(slurm, tester, "--partition", "abrupt")
    run.reach(9)
    slurm.preempt(run.job)
    slurm.start_now(run.job)
    run.ends_as_the_other(lives=2)
    assert "resumes after update " in run.output


def test_a_job_that_somebody_queues_again_goes_on(slurm: SmallSlurm, tester: RunTester) -> None:
    run = BatchRun(slurm, tester)
    run.reach(9)
    slurm.ask("scontrol", "requeue", str(run.job))
    slurm.start_now(run.job)
    run.ends_as_the_other(lives=2)
    assert "resumes after update " in run.output


def test_a_job_that_somebody_tells_to_end_saves_first(slurm: SmallSlurm, tester: RunTester) -> None:
    run = BatchRun(slurm, tester)
    run.reach(9)
    slurm.ask("scancel", "--batch", "--signal=TERM", str(run.job))
    slurm.reach(run.job, "PENDING")
    assert "Stopped early, and saved." in run.output
    slurm.start_now(run.job)
    run.ends_as_the_other(lives=2)


def test_a_job_that_loses_a_node_goes_on_when_there_are_enough_again(slurm: SmallSlurm, tester: RunTester) -> None:
    run = BatchRun(slurm, tester)
    run.reach(9)
    slurm.kill_node(NODES[1])
    until(lambda: slurm.job(run.job)["Restarts"] == "1", lambda: run.output + slurm.state(), PATIENCE)
    slurm.start_node(NODES[1])
    slurm.start_now(run.job)
    run.ends_as_the_other(lives=2)


def test_a_job_at_its_time_limit_saves_and_goes_on_and_says_when_it_is_finished(slurm: SmallSlurm, tester: RunTester) -> None:
    run = BatchRun(slurm, tester, "--time", "20:00")
    run.reach(9)
    slurm.nearly_over(run.job)
    slurm.reach(run.job, "PENDING")
    assert "Stopped early, and saved." in run.output
    slurm.ask("scontrol", "update", f"JobId={run.job}", "TimeLimit=20")
    slurm.start_now(run.job)
    run.ends_as_the_other(lives=2)
    written = run.output
    output, file = tester.folder / "again.out", tester.folder / "run.sbatch"
    again = slurm.submit(f"--output={output}", str(file), environment=tester.plugins.environment)
    assert slurm.reach(again, "COMPLETED", "FAILED")["ExitCode"] == "0:0"
    assert f"is finished, after {STEPS} updates" in output.read_text()
    assert run.output == written
    assert run.steps == list(range(1, STEPS + 1))
