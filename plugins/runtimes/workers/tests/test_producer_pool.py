"""Who dies is replaced, who fails again and again is given up, and the run ends only when nobody is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rlcore_plugin_workers import driver_loop, producer_pool
from rlcore_plugin_workers.deployment import Deployment
from rlcore_plugin_workers.heartbeat import Deadlines
from rlcore_plugin_workers.producer_pool import ProducerPool
from rlcore_plugin_workers.workers import Launcher, Placement, WorkerDiedError

from rlcore.api import DataError, RunError, WeightsError
from rlcore.api.runtime import RewardBudgetError, WorkerLostError
from tests.driver_stage import DriverStage, driver_stage
from tests.worker_answers import Answer, ToldWorker


class Starter(Launcher):
    """``made`` by name. Its workers are there at once, and load at once."""

    def __init__(self) -> None:
        self.made: dict[str, ToldWorker] = {}
        self.seats: dict[str, Placement] = {}
        self.numbers: dict[str, int] = {}
        self.ready: dict[str, Any] = {"lives": lambda: 1, "prepare": lambda: None, "connect": lambda: None}

    def start(self, host: type, *arguments: Any, name: str, placement: Placement) -> ToldWorker:
        self.seats[name] = placement
        self.numbers[name] = arguments[-1]
        worker = self.made[name] = ToldWorker(name, **self.ready)
        return worker

    def close(self) -> None: ...


class OneRoom(Deployment):
    """Everybody is at ``home``; who must leave it goes to ``elsewhere``, None for nowhere."""

    def __init__(self, delivered: int) -> None:
        self.launcher = self.starter = Starter()
        self.schedule = ToldWorker("the coordinator", join=lambda: None, worker_lost=lambda: (3, delivered))
        self.elsewhere: Placement | None = Placement(place="home")
        self.standing = True
        self.asked: list[Any] = []

    def trainer_placement(self, rank: int) -> Placement:
        raise AssertionError("nobody trains here")

    def producer_placement(self, number: int) -> Placement:
        return Placement(place="home")

    def find_placement(self, placement: Placement) -> Answer:
        found = Answer()
        found.give(self.elsewhere)
        return found

    def stands(self, placement: Placement) -> bool:
        return self.standing

    def endpoints(self, placement: Placement) -> Any:
        self.asked.append(placement.place)

    def stores(self) -> Any:
        return {}

    def judges(self) -> Any:
        return []


class Stage:
    """A pool of two whose schedule answers at once; a lost worker had delivered ``delivered`` groups."""

    def __init__(self, driver: DriverStage, restarts: int = 1, delivered: int = 0, **seconds: float) -> None:
        deadlines = {"engine_seconds": 60.0, "load_seconds": 60.0, "weights_seconds": 60.0, **seconds}
        self.deployment, self.driver, self.said, self.lost = OneRoom(delivered), driver, list[str](), list[str]()
        self.starter = self.deployment.starter
        waits = Deadlines(restarts=restarts, **deadlines)
        self.pool = driver.make(ProducerPool, self.deployment, driver.driver, None, 2, deadlines=waits, say=self.said.append)
        self.why: Answer | None = None
        self.pool.on_loss = self.left
        driver.make(self.pool.connect, "address")
        driver.make(self.pool.run, None)
        driver.drain()

    def left(self, name: str) -> Answer:
        self.lost.append(name)
        answer = Answer()
        if self.why is None:
            answer.give("")
        return self.why or answer

    def die(self, name: str, error: Exception | None = None) -> None:
        worker = self.starter.made[name]
        worker.calls["run"][0].fail(error or worker.death)

    def serve(self, *names: str) -> None:
        for name in names:
            self.starter.made[name].calls["serves"][0].give(0)
        self.driver.drain()


Made = Callable[..., Stage]


@pytest.fixture
def staged() -> Iterator[Made]:
    with driver_stage() as driver:
        yield lambda **settings: Stage(driver, **settings)


def test_a_producer_that_takes_the_place_of_another_has_its_number(staged: Made) -> None:
    stage = staged(restarts=2)
    stage.serve("producer-0", "producer-1")
    stage.die("producer-1")
    stage.driver.drain()
    assert stage.starter.numbers == {"producer-0": 0, "producer-1": 1, "producer-1.1": 1}


def test_who_dies_is_replaced_under_a_new_name(staged: Made) -> None:
    stage = staged()
    stage.serve("producer-0", "producer-1")
    stage.die("producer-0")
    stage.driver.drain()
    assert "producer-0.1" in stage.starter.made
    assert stage.lost == ["producer-0"]
    assert "producer-0 was lost" in stage.said[0]
    assert "producer-0.1 takes its place" in stage.said[0]
    assert len(stage.pool.serving) == 1


def test_who_hangs_is_replaced_and_killed(staged: Made) -> None:
    stage = staged()
    stage.serve("producer-0", "producer-1")
    hung = stage.starter.made["producer-0"]
    hung.calls["guard"][0].fail(RunError("its engine has not come back"))
    stage.driver.drain()
    assert "producer-0 was lost (its engine has not come back" in stage.said[0]
    assert "producer-0.1" in stage.starter.made
    assert hung.killed
    hung.calls["run"][0].fail(hung.death)  # what is said of it afterwards
    stage.driver.drain()
    assert "producer-0.2" not in stage.starter.made


def test_who_takes_a_place_and_never_serves_is_replaced(staged: Made) -> None:
    stage = staged(restarts=2, weights_seconds=0.0)
    stage.serve("producer-0", "producer-1")
    stage.die("producer-0")
    stage.driver.drain()
    stage.driver.until(lambda: "producer-0.2" in stage.starter.made)
    assert any("producer-0.1 was lost (it served no weights within 0 s)" in said for said in stage.said)


def test_who_takes_a_place_and_is_never_ready_is_replaced(staged: Made) -> None:
    stage = staged(restarts=2, load_seconds=0.0)
    stage.serve("producer-0", "producer-1")
    stage.starter.ready.pop("connect")  # from here on nobody is connected
    stage.die("producer-0")
    stage.driver.drain()
    stage.driver.until(lambda: "producer-0.2" in stage.starter.made)
    assert any("producer-0.1 was lost (its model did not load within 0 s;" in said for said in stage.said)


def test_failures_in_a_row_end_in_giving_up_and_the_others_go_on(staged: Made) -> None:
    stage = staged(restarts=1)
    stage.die("producer-0")
    stage.driver.drain()
    stage.die("producer-0.1", RunError("the engine died"))
    stage.driver.drain()
    assert "continues with 1 producer" in stage.said[-1]
    assert any("producer-0 was given up" in remark and "the engine died" in remark for remark in stage.pool.remarks())


def test_who_delivered_something_begins_anew(staged: Made) -> None:
    stage = staged(restarts=1, delivered=4)
    name = "producer-0"
    for life in range(1, 5):
        stage.die(name)
        stage.driver.drain()
        name = f"producer-0.{life}"
    assert name in stage.starter.made


def test_two_that_die_together_are_not_taken_for_nobody_left(staged: Made) -> None:
    stage = staged(restarts=0)
    stage.die("producer-0")
    stage.die("producer-1")
    with pytest.raises(RunError, match="no producer is left"):
        stage.driver.drain()
    assert "continues with 1 producer" in stage.said[0]  # the second one, which was not judged yet


def test_wrong_weights_end_the_run_and_not_the_producer(staged: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = staged()
    monkeypatch.setattr(driver_loop, "_CAUSE_SECONDS", 0.01)  # no death stands behind it
    stage.die("producer-0", WeightsError("producer-0 does not serve version 3"))
    with pytest.raises(WeightsError, match="does not serve version 3"):
        stage.driver.drain()


@pytest.mark.parametrize("error", [RewardBudgetError("7 of the last 50 reward verdicts failed"), DataError("train.jsonl:3: no gold")])
@pytest.mark.parametrize("where", ["run", "guard"])
def test_what_would_happen_on_any_producer_ends_the_run(staged: Made, error: RunError | DataError, where: str) -> None:
    stage = staged()
    stage.serve("producer-0", "producer-1")
    stage.starter.made["producer-0"].calls[where][0].fail(error)
    with pytest.raises(type(error), match=str(error)):
        stage.driver.drain()
    assert list(stage.starter.made) == ["producer-0", "producer-1"], "it was replaced"
    assert stage.lost == []


def test_who_does_not_serve_in_time_is_named(staged: Made) -> None:
    stage = staged()
    stage.serve("producer-1")
    with pytest.raises(WeightsError, match=r"^producer-0 did not serve version 0 within 0.01 s"):
        stage.driver.run(stage.pool.wait_until_serving(0, 0.01))


def test_an_old_actor_s_late_words_are_not_heard(staged: Made) -> None:
    stage = staged()
    stage.die("producer-0")
    stage.driver.drain()
    stage.starter.made["producer-0"].calls["serves"][0].give(0)
    stage.driver.drain()
    assert not stage.pool.serving


def test_who_loses_the_coordinator_is_not_replaced(staged: Made) -> None:
    """The driver itself is told of that death, and ends the run."""
    stage = staged()
    stage.serve("producer-0", "producer-1")
    stage.die("producer-0", WorkerDiedError("the coordinator", "the process of the coordinator died"))
    stage.driver.drain()
    assert list(stage.starter.made) == ["producer-0", "producer-1"]
    assert stage.said == stage.lost == []


def test_who_loses_a_service_of_its_node_is_replaced_and_the_service_is_named(staged: Made) -> None:
    stage = staged()
    stage.serve("producer-0", "producer-1")
    stage.die("producer-0", WorkerDiedError("the store of its node", "the process of the store of its node died"))
    stage.driver.drain()
    assert stage.said[0].startswith("warning: producer-0 was lost (the process of the store of its node died);")
    assert "producer-0.1" in stage.starter.made


def test_who_loses_its_node_moves_to_the_seat_that_the_site_has_for_it(staged: Made) -> None:
    stage = staged(restarts=5)
    stage.serve("producer-0", "producer-1")
    stage.deployment.elsewhere = Placement(place="elsewhere")
    stage.die("producer-0")
    stage.driver.drain()
    assert stage.starter.seats["producer-0.1"].place == "elsewhere"
    assert stage.deployment.asked[-1] == "elsewhere"


def test_who_loses_its_node_and_finds_no_room_takes_a_place_again_once_there_is_room(staged: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_pool, "_LOOK_SECONDS", 0.01)
    stage = staged(restarts=5)
    stage.serve("producer-0", "producer-1")
    stage.deployment.elsewhere = None
    stage.die("producer-0")
    stage.driver.drain()
    for _ in range(5):  # it looks again and again, and says so once
        stage.driver.drain()
    assert [said for said in stage.said if "no node has room for a replacement; the run continues with 1 producer" in said] == stage.said
    stage.driver.run(stage.pool.wait_until_serving(0, 5.0))  # nobody waits for it
    stage.deployment.elsewhere = Placement(place="another")
    stage.driver.until(lambda: "producer-0.1" in stage.starter.made)
    assert stage.starter.seats["producer-0.1"].place == "another"
    assert stage.said[-1] == "a node has room again; producer-0.1 takes its place"


def test_if_no_node_has_room_for_any_producer_the_run_ends_at_the_load_deadline(staged: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_pool, "_LOOK_SECONDS", 0.01)
    stage = staged(restarts=5, load_seconds=0.2)
    stage.serve("producer-0", "producer-1")
    stage.deployment.elsewhere = None
    stage.die("producer-0")
    stage.die("producer-1")
    with pytest.raises(WorkerLostError, match=r"no producer is left, and no node has had room for one for 0.2 s"):
        stage.driver.until(lambda: False)


def test_a_process_whose_node_goes_while_it_starts_is_not_waited_for(staged: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_pool, "_LOOK_SECONDS", 0.01)
    stage = staged(restarts=5)
    stage.serve("producer-0", "producer-1")
    del stage.starter.ready["lives"]
    stage.deployment.standing = False
    stage.die("producer-0")
    stage.driver.until(lambda: "producer-0.2" in stage.starter.made)
    assert any("producer-0.1 was lost (its node is gone)" in said for said in stage.said)


def test_a_process_that_was_stopped_is_replaced(staged: Made) -> None:
    """Its guard stands still with it."""
    stage = staged(silence_seconds=0.1)
    stage.starter.made["producer-0"]._ready.pop("lives")
    stage.driver.until(lambda: bool(stage.said))
    assert "producer-0 was lost (its process has not answered for 0.1 s)" in stage.said[0]


def test_who_has_prompts_and_delivers_nothing_is_replaced(staged: Made) -> None:
    stage = staged(lease_seconds=7.0)
    stage.serve("producer-0", "producer-1")
    stage.driver.make(stage.pool.overdue, ["producer-1", "producer-9"])
    stage.driver.drain()
    assert "producer-1 was lost (it had prompts and delivered no group for 7 s; if a group may take that long" in stage.said[0]
    assert len(stage.said) == 1


def test_whom_the_publisher_ended_is_said_to_be_lost_for_its_reason(staged: Made) -> None:
    """And not for the signal; if rank 0 does not answer, what is known is said."""
    stage = staged()
    stage.serve("producer-0", "producer-1")
    stage.why = Answer()
    stage.die("producer-0")
    stage.driver.drain()
    assert not stage.said
    stage.why.give("producer producer-0 (process 7) kept version 3 for 6 s, so it was ended")
    stage.driver.drain()
    assert "producer-0 was lost (producer producer-0 (process 7) kept version 3 for 6 s, so it was ended); the 3 groups" in stage.said[0]
    stage.why = Answer()
    stage.die("producer-1")
    stage.driver.until(lambda: len(stage.said) == 2)
    assert "producer-1 was lost (the process of producer-1 died)" in stage.said[1]


@pytest.mark.parametrize("step", ["prepare", "connect"])
def test_who_first_loads_for_longer_than_the_deadline_is_named_and_ends_the_run(staged: Made, step: str) -> None:
    """A process that is stopped, or hangs."""
    stage = staged(load_seconds=0.05)
    del stage.starter.made["producer-1"]._ready[step]
    loading = stage.driver.make(stage.pool.prepare) if step == "prepare" else stage.driver.make(stage.pool.connect, "address")
    with pytest.raises(WorkerLostError, match=r"^producer-1 did not load within 0.05 s; .* or raise --producer-load-deadline$"):
        stage.driver.until(lambda: False)
    loading[1].give(None)  # type: ignore[attr-defined]
    stage.driver.drain()


def test_one_that_the_weights_wait_for_no_more_is_ended_by_its_handle_and_replaced(staged: Made) -> None:
    stage = staged()
    stage.driver.make(stage.pool.end, "producer-1")
    stage.driver.drain()
    assert stage.starter.made["producer-1"].killed
    assert stage.lost == ["producer-1"]
    assert "producer-1.1" in stage.starter.made
    assert not stage.starter.made["producer-0"].killed


def test_a_name_that_nobody_has_ends_nothing(staged: Made) -> None:
    stage = staged()
    for name in ("producer-2", "producer-1.1", "", "producer"):
        stage.driver.make(stage.pool.end, name)
    stage.driver.drain()
    assert not any(worker.killed for worker in stage.starter.made.values())
    assert stage.lost == []
