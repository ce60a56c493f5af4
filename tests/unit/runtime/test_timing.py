"""Timing: reports of many workers become the figures of a step, of the run, and the rows of its trace."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from rlcore.runtime import timing
from rlcore.runtime.timing import Timing, peak_memory
from rlcore.schedule import Role, Span, TimeAccount, WorkerTime


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def reported(worker: str, role: Role, start: float, **seconds: float) -> WorkerTime:
    spans = []
    for activity, spent in seconds.items():
        spans.append(Span(activity, start, spent))
        start += spent
    return WorkerTime(worker=worker, role=role, seconds=seconds, spans=tuple(spans))


def up_to(moment: float, accounts: dict[str, TimeAccount]) -> list[WorkerTime]:
    return [account.report(name, Role(name), moment) for name, account in accounts.items()]


def test_what_was_booked_before_the_start_does_not_count() -> None:
    clock = Clock()
    accounts = {"trainer": TimeAccount(clock), "producer": TimeAccount(clock)}
    with accounts["trainer"].span("training"):
        clock.now += 5
    up_to(clock.now, accounts)
    made = Timing.start(clock.now)
    with accounts["trainer"].span("training"):
        clock.now += 2
    made.saw(up_to(clock.now, accounts))
    made.stop(clock.now, {"forward": 1.5})
    assert made.by_activity == {
        "trainer/training": 2.0,
        "trainer/idle": 0.0,
        "producer/idle": 2.0,
        "trainer/training/forward": 1.5,
    }


def test_the_activities_of_every_role_sum_to_the_seconds_however_late_the_clock_is_read() -> None:
    """A second passes whenever anybody reads the clock, as on a machine with more to do than it can."""
    ticks = map(float, itertools.count())
    accounts = {"trainer": TimeAccount(lambda: next(ticks)), "producer": TimeAccount(lambda: next(ticks))}
    now = next(ticks)
    up_to(now, accounts)
    made = Timing.start(now)
    with accounts["trainer"].span("training"), accounts["producer"].span("generation"):
        made.saw(up_to(next(ticks), accounts))
    now = next(ticks)
    made.saw(up_to(now, accounts))
    made.stop(now)
    for role in accounts:
        assert sum(spent for name, spent in made.by_activity.items() if name.startswith(role)) == made.seconds > 0


def test_a_run_that_nobody_reports_of_has_no_activities() -> None:
    made = Timing.start(3.0)
    made.stop(5.0)
    assert (made.by_activity, made.seconds) == ({}, 2.0)


def test_the_figures_of_a_step_are_those_since_the_last_and_the_shares_those_of_all() -> None:
    made = Timing.start(0.0)
    made.saw([reported("rank 0", Role.TRAINER, 0.0, training=3.0), reported("p0", Role.PRODUCER, 0.0, generation=4.0)])
    first = made.step(tokens_generated=100, tokens_wasted=50)
    made.saw([reported("rank 0", Role.TRAINER, 3.0, training=1.0), reported("p0", Role.PRODUCER, 4.0, generation=4.0)])
    made.saw([reported("p1", Role.PRODUCER, 4.0, scoring=2.0)])
    second = made.step(tokens_generated=100)
    assert (first["time/trainer/compute"], first["time/producers/compute"], first["time/producers/wasted"]) == (3.0, 2.0, 2.0)
    assert (second["time/trainer/compute"], second["time/producers/compute"], second["time/producers/wasted"]) == (1.0, 4.0, 0.0)
    made.stop(8.0)
    figures = made.shares()
    assert figures["trainer_busy"] == 1.0
    assert figures["producers/wasted"] == pytest.approx(8.0 * 0.25 / 10.0)
    assert made.by_activity == {"trainer/training": 4.0, "producer/generation": 8.0, "producer/scoring": 2.0}


def test_the_seconds_of_each_worker_are_those_of_the_step_and_of_the_whole_run() -> None:
    made = Timing.start(0.0)
    made.saw([reported("rank 0", Role.TRAINER, 0.0, training=3.0), reported("p0", Role.PRODUCER, 0.0, generation=4.0, scoring=1.0)])
    made.saw([reported("p1", Role.PRODUCER, 0.0, generation=2.0)])
    figures = made.step(tokens_generated=100, tokens_wasted=25)
    first = made.step_workers
    assert {name: seconds for name, seconds in first["p0"].items() if seconds} == {"compute": 3.0, "blocked_by_rewards": 1.0, "wasted": 1.0}
    assert {name: seconds for name, seconds in first["p1"].items() if seconds} == {"compute": 1.5, "wasted": 0.5}
    assert first["rank 0"]["compute"] == 3.0
    assert {f"time/producers/{name}": first["p0"][name] + first["p1"][name] for name in first["p0"]}.items() <= figures.items()
    made.saw([reported("p1", Role.PRODUCER, 2.0, generation=6.0)])
    made.step(tokens_generated=100)
    assert made.step_workers.keys() == {"p1"}
    made.saw([reported("rank 0", Role.TRAINER, 3.0, weights=0.5)])
    total = made.workers()
    assert (total["rank 0"]["waiting_for_weights"], total["p0"]["wasted"], total["p1"]["wasted"]) == (0.5, 4.0 / 8, 8.0 / 8)
    assert {name: sum(seconds.values()) for name, seconds in total.items()} == {"rank 0": 3.5, "p0": 5.0, "p1": 8.0}


def test_the_rows_of_the_trace_join_what_the_reports_cut() -> None:
    made = Timing.start(0.0)
    for start in (0.0, 1.0, 2.0):
        made.saw([reported("p0", Role.PRODUCER, 10.0 + start, generation=1.0)])
    assert made.rows() == [("p0", "producer", "generation", 10.0, 3.0)]


def test_however_long_the_run_the_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_SPANS", 40)
    made = Timing.start(0.0)
    for second in range(200):
        for worker in ("p0", "p1"):
            made.saw([reported(worker, Role.PRODUCER, 3.0 * second, generation=1.0, scoring=1.0)])
    assert 2 <= len(made.rows()) <= 40


def test_the_peak_of_a_process_is_the_last_that_it_told_and_the_driver_s_is_not_counted_again() -> None:
    seen = Timing.start(0.0)
    for peak in (5, 7):
        seen.saw([WorkerTime(worker="producer-0", role=Role.PRODUCER, seconds={}, peak_memory_bytes=peak)])
    seen.saw([WorkerTime(worker="trainer-0", role=Role.TRAINER, seconds={})])  # in the driver's process
    assert seen.peaks == {"producer-0": 7}


def test_the_peak_memory_of_a_process_is_its_own_and_not_that_of_its_parent() -> None:
    before = peak_memory()
    memory = bytearray(200 << 20)
    assert peak_memory() >= before
    code = "from rlcore.runtime.timing import peak_memory; print(peak_memory())"
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 1 << 20 < child < len(memory) + before
