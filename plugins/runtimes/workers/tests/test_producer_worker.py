"""A producer as a worker: what it must find as the driver found it, and how an engine that hangs is noticed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_workers import producer_worker
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.producer_worker import ProducerWorker
from rlcore_plugin_workers.workers import WorkerDiedError

from rlcore.api import DataError, InferenceContext, RunError
from rlcore.api.runtime import Plan, fingerprints, load_data, read_texts
from rlcore.testing import FakeInference, RunTester, make_plan

SECONDS = 20.0


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plan]:
    tester = RunTester(tmp_path).with_fakes()
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        yield make_plan(tester.fake_run())


def shipment_of(plan: Plan) -> PlanBundle:
    data = load_data(plan)
    return PlanBundle.of(plan, fingerprints(data, read_texts(plan, data).tokenizer))


def test_it_prepares_where_everything_is_as_the_driver_found_it(plan: Plan) -> None:
    assert ProducerWorker(shipment_of(plan), "producer-0").prepare() == []


def test_prompts_that_the_driver_drops_every_producer_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RunTester(tmp_path).with_fakes()
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        dropping = make_plan(tester.fake_run(data={"max_prompt_tokens": 3, "overlong": "drop"}))
        tester.write_jsonl("train.jsonl", [{"messages": {"role": "user", "content": text}, "gt_answer": "a"} for text in ("abcabc", "b")])
        driver = read_texts(dropping, load_data(dropping))
        producer = read_texts(dropping, load_data(dropping), checked=True)
    assert [prompt.prompt_id for prompt in driver.sources[0]] == [prompt.prompt_id for prompt in producer.sources[0]] == ["train:2"]
    assert driver.dropped == {"train": 1}


def test_its_engine_is_told_whose_it_is(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[InferenceContext] = []
    make = FakeInference.__init__
    monkeypatch.setattr(FakeInference, "__init__", lambda self, context, *more: (told.append(context), make(self, context, *more))[1])
    ProducerWorker(shipment_of(plan), "producer-3.1", 3).prepare()
    assert [(context.producer, context.producers) for context in told] == [(3, plan.config.inference.num_inferencer)]


@pytest.mark.parametrize(("name", "what"), [("train", "data set train"), ("tokenizer", "tokenizer")])
def test_other_rows_or_another_tokenizer_are_refused(plan: Plan, name: str, what: str) -> None:
    plan_bundle = shipment_of(plan)
    other = replace(plan_bundle, fingerprints={**plan_bundle.fingerprints, name: "0" * 64})
    with pytest.raises(
        DataError, match=f"^{what} is read by each process, and producer-0 reads different content from .* type --max-staleness 0"
    ):
        ProducerWorker(other, "producer-0").prepare()


def test_its_loop_waits_for_weights_as_long_as_the_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RunTester(tmp_path).with_fakes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(producer_worker, "make_receiver", lambda *given, **named: None)
    endpoints: Any = SimpleNamespace(judge=None, schedule=None, store=None)
    with tester.plugins:
        host = ProducerWorker(shipment_of(make_plan(tester.fake_run(weights={"deadline": 7.0}))), "producer-0")
        host.prepare()
        host.connect(endpoints, None)
    assert host._loop.weights_seconds == 7.0


class Ages:
    """A pulse whose ages a test gives, the last one for ever."""

    def __init__(self, *ages: float) -> None:
        self._ages = list(ages)

    @property
    def age(self) -> float:
        return self._ages.pop(0) if len(self._ages) > 1 else self._ages[0]

    def where(self) -> str:
        return "engine.py:12 in poll"


def guarded(pulse: Ages, over: Future[None]) -> ProducerWorker:
    host: Any = ProducerWorker.__new__(ProducerWorker)
    host._loop, host._over, host._engine = SimpleNamespace(pulse=pulse), over, object()
    return host


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the guard arms, 0 where it disarms: the real thing would end the process of the tests."""
    calls: list[float] = []

    def arm(seconds: float, *, exit: bool, file: int) -> None:
        assert (exit, file) == (True, 2)
        calls.append(seconds)

    watchdog = SimpleNamespace(dump_traceback_later=arm, cancel_dump_traceback_later=lambda: calls.append(0.0))
    monkeypatch.setattr(producer_worker, "faulthandler", watchdog)
    return calls


def test_an_engine_that_does_not_come_back_is_named_with_the_place(armed: list[float]) -> None:
    with pytest.raises(RunError, match=r"its engine object has not come back for 0.05 s, and was last at engine.py:12 in poll"):
        guarded(Ages(0.04, 0.04, 0.02, 0.02, 0.06), Future()).guard(0.05)
    assert armed == [0.1, 0.1, 0.0]


def test_the_guard_ends_with_the_run(armed: list[float]) -> None:
    over: Future[None] = Future()
    over.set_result(None)
    guarded(Ages(0.0), over).guard(SECONDS)
    assert armed == [2 * SECONDS, 0.0]


def test_a_library_that_lets_no_thread_run_ends_the_process() -> None:
    """The guard is a thread of the same interpreter; what it arms is not."""
    program = """
import ctypes, faulthandler, threading
from concurrent.futures import Future
from types import SimpleNamespace
from rlcore_plugin_workers.producer_worker import ProducerWorker
from rlcore.runtime.watchdog import Watchdog
host = ProducerWorker.__new__(ProducerWorker)
host._loop, host._over, host._engine = SimpleNamespace(pulse=Watchdog()), Future(), object()
armed, arm = threading.Event(), faulthandler.dump_traceback_later
faulthandler.dump_traceback_later = lambda *how, **more: (arm(*how, **more), armed.set())
threading.Thread(target=host.guard, args=(0.5,), daemon=True).start()
armed.wait()
ctypes.PyDLL(None).sleep(1000)  # keeps the interpreter's lock
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Timeout (0:00:01)!" in done.stderr


def test_what_is_asked_of_a_producer_whose_loop_has_ended_is_answered_as_by_a_dead_one() -> None:
    """In a process that goes on nobody else would answer, and the call would keep its thread for ever."""
    host = ProducerWorker(None, "producer-0")  # type: ignore[arg-type]
    loop: Any = SimpleNamespace(evaluate=lambda jobs, version: Future())
    host._loop = loop
    host._over.set_result(None)
    with pytest.raises(WorkerDiedError, match="producer-0 has ended"):
        host.evaluate((), 0)
