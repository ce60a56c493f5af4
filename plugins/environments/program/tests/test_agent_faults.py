"""Producers, gateway processes and drivers that die, stop or are ended while episodes are in flight, in whole runs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from tests.agent_runs import agent_run, answers, complete
from tests.integration.ray.faults import BackgroundRun, Outcome, processes_of, until
from tests.process_family import await_end, descendants

pytestmark = pytest.mark.full
STEPS, PROMPTS = 8, 24
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
IN_A_CALL, THINKING = 0.0, 1.0
"""Seconds between the calls of an agent: with 0, nearly every agent waits for the engine at any moment."""
FAULTS = pytest.mark.parametrize(
    ("number", "thinks"),
    [
        pytest.param(KILL, THINKING, id="killed while agents think"),
        pytest.param(STOP, IN_A_CALL, id="stopped while agents call"),
        pytest.param(KILL, IN_A_CALL, id="killed while agents call", marks=pytest.mark.nightly),
        pytest.param(STOP, THINKING, id="stopped while agents think", marks=pytest.mark.nightly),
    ],
)


def project(tmp_path: Path, thinks: float = 0.3, **sections: Any) -> tuple[RunTester, str]:
    tester = RunTester(tmp_path)
    own: dict[str, dict[str, Any]] = {
        "run": {"num_episodes": 4, "max_steps": STEPS},
        "schedule": {"heartbeat_deadline": 4.0, "producer_deadline": 6.0, "producer_restarts": 2},
        "weights": {"deadline": 4.0},
        "log": {"save_interval": 1},
    }
    return tester, agent_run(tester, thinks=thinks, **{name: {**own.get(name, {}), **sections.get(name, {})} for name in own | sections})


def play_on(run: BackgroundRun, folder: Path) -> None:
    """Wait until more episodes are in flight than before."""
    before = len(answers(folder))
    until(lambda: len(answers(folder)) > before or run.over, "a call of an episode")


def producer(run: BackgroundRun) -> int:
    """The process of the producer; its guard is a child of it, with the same words."""
    children = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(run.process.pid)}
    (pid,) = [pid for pid, words in children.items() if b'"name": "producer-0' in words and parent(pid) == run.process.pid]
    return pid


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gateway(run: BackgroundRun) -> int:
    """A gateway process of the producer, below its guard."""
    found = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(run.process.pid)}
    return next(pid for pid, words in found.items() if b"rlcore_gateway.process" in words and b"guard.py" not in words)


def trained_once(outcome: Outcome, folder: Path) -> None:
    complete(outcome, folder, steps=STEPS, prompts=PROMPTS)


def nothing_left(folder: Path) -> None:
    until(lambda: not processes_of(folder), lambda: f"these to end: {processes_of(folder)}", 30.0)


def test_two_producers_and_two_ranks_train_on_episodes(tmp_path: Path) -> None:
    tester, config = project(tmp_path, 0.05, inference={"num_inferencer": 2, "inference_batch_size": 3}, training={"num_trainers": 2})
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        outcome = run.outcome()
    trained_once(outcome, tmp_path)
    assert len(list(tmp_path.glob("engine-*.jsonl"))) == 2, "both producers answered"


@FAULTS
def test_a_producer_that_dies_or_stops_is_replaced_and_its_episodes_are_played_again(
    tmp_path: Path, number: signal.Signals, thinks: float
) -> None:
    tester, config = project(tmp_path, thinks=thinks)
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(2)
        play_on(run, tmp_path)
        victim = producer(run)
        family = descendants(victim)
        assert len(family) >= 3, "guard, gateway and a worker"
        os.kill(victim, number)
        run.said(r"producer-0\.1 takes its place")
        await_end([victim, *family], 20.0)
        assert not run.over, "the rest of the run was not watched"
        outcome = run.outcome()
    trained_once(outcome, tmp_path)


@FAULTS
@pytest.mark.parametrize("gateways", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_gateway_process_that_dies_or_stops_is_replaced_and_its_episodes_are_played_again(
    tmp_path: Path, number: signal.Signals, thinks: float, gateways: int
) -> None:
    options = {"workers": 2, "cancel_seconds": 1.0, "deadline": 60.0, "gateway_silence": 3.0, "gateways": gateways}
    tester, config = project(tmp_path, thinks, sampling={"options": options})
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(2)
        play_on(run, tmp_path)
        victim = gateway(run)
        family = [parent(victim), victim, *descendants(victim)]
        os.kill(victim, number)
        run.said("it is started anew, and its episodes begin again")
        await_end(family, 20.0)
        assert not run.over
        outcome = run.outcome()
    trained_once(outcome, tmp_path)


@pytest.mark.parametrize("thinks", [IN_A_CALL, pytest.param(THINKING, marks=pytest.mark.nightly)], ids=["in a call", "thinking"])
def test_nothing_is_left_of_a_driver_that_is_killed_and_the_resumed_run_trains_each_prompt_once(tmp_path: Path, thinks: float) -> None:
    tester, config = project(tmp_path, thinks)
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(3)
        play_on(run, tmp_path)
        family = descendants(run.process.pid)
        os.kill(run.process.pid, signal.SIGKILL)
        await_end(family, 20.0)
        folder = run.outcome().folder
    nothing_left(tmp_path)
    with BackgroundRun(tester, ("resume", str(folder), "--json"), tmp_path) as run:
        outcome = run.outcome()
    trained_once(outcome, tmp_path)


def test_a_driver_that_stops_goes_on_and_if_it_is_killed_then_nothing_is_left(tmp_path: Path) -> None:
    tester, config = project(tmp_path, run={"num_episodes": 400, "max_steps": 800})
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(1)
        play_on(run, tmp_path)
        family = descendants(run.process.pid)
        run.process.send_signal(signal.SIGSTOP)
        time.sleep(8.0)  # longer than the deadlines
        run.process.send_signal(signal.SIGCONT)
        run.reach(run.step + 3)
        assert not [line for line in run.stderr if "lost" in line]
        assert set(descendants(run.process.pid)) >= set(family[:3])
        run.process.send_signal(signal.SIGSTOP)
        family = descendants(run.process.pid)
        run.process.kill()
        await_end(family, 20.0)
    nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("runtime", "number"),
    [
        ("one process", signal.SIGINT),
        ("processes", signal.SIGTERM),
        pytest.param("one process", signal.SIGTERM, marks=pytest.mark.nightly),
        pytest.param("processes", signal.SIGINT, marks=pytest.mark.nightly),
    ],
)
def test_a_run_that_is_ended_does_not_wait_for_agents_that_think_long(tmp_path: Path, runtime: str, number: signal.Signals) -> None:
    sections = {"schedule": {"max_staleness": 0}} if runtime == "one process" else {}
    tester, config = project(tmp_path, 0.0, **sections)
    source = (tmp_path / "agent.py").read_text()
    held = f"    while Path({str(tmp_path / 'hold')!r}).exists():\n        time.sleep(0.05)\n    for _ in range(2):\n"
    assert "    for _ in range(2):\n" in source
    (tmp_path / "agent.py").write_text(source.replace("    for _ in range(2):\n", held))
    with BackgroundRun(tester, ("train", config), tmp_path) as run:
        run.reach(2)
        (tmp_path / "hold").touch()
        until(lambda: _still(tmp_path), "all agents to think")
        run.process.send_signal(number)
        outcome = run.outcome()
    assert outcome.exit_code == 130, outcome
    assert not any("Traceback" in line for line in outcome.stderr), outcome
    nothing_left(tmp_path)
    (tmp_path / "hold").unlink()
    with BackgroundRun(tester, ("resume", str(outcome.folder), "--json"), tmp_path) as run:
        trained_once(run.outcome(), tmp_path)


@pytest.mark.parametrize("staleness", [0, 2], ids=["one process", "processes"])
def test_a_run_that_is_terminated_while_its_gateway_starts_leaves_nothing(tmp_path: Path, staleness: int) -> None:
    tester, config = project(tmp_path, schedule={"max_staleness": staleness})
    (tmp_path / "hold").touch()  # the run cannot end before the signal, however late the process is seen
    with BackgroundRun(tester, ("train", config), tmp_path) as run:
        until(lambda: run.over or [one for one in processes_of(tmp_path) if "rlcore_gateway.process" in one.title], "a gateway process")
        run.process.send_signal(signal.SIGTERM)
        outcome = run.outcome()
    assert outcome.exit_code in (130, 143), outcome  # 130 if the training had begun
    assert not any("Traceback" in line for line in outcome.stderr), outcome
    nothing_left(tmp_path)


def _still(folder: Path) -> bool:
    before = len(answers(folder))
    time.sleep(1.0)
    return len(answers(folder)) == before
