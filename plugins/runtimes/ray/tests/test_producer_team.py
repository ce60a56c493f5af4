"""Who dies is replaced, who fails again and again is given up, and the run ends only when nobody is left."""

from __future__ import annotations

from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from rlcore_plugin_ray.driver_inbox import DriverInbox
from rlcore_plugin_ray.node_placement import Node, Places
from rlcore_plugin_ray.producer_team import Patience, ProducerTeam
from rlcore_plugin_ray.remote import COORDINATOR, CalleeDiedError
from rlcore_plugin_ray.session import Seat

from rlcore.api import ConfigError, DataError, RunError, WeightsError
from rlcore.api.runtime import RewardBudgetError, WorkerLostError
from tests.ray_answers import Actor


class Session:
    """Actors without Ray; ``made`` by name. They are there at once, and load at once."""

    def __init__(self) -> None:
        self.made: dict[str, Actor] = {}
        self.killed: list[Actor] = []
        self.seats: dict[str, Seat] = {}
        self.alive = ["n"]
        self.room = True
        self.reserved: list[Any] = []
        self.ready: dict[str, Any] = {"lives": lambda: 1, "prepare": lambda: None, "connect": lambda: None}

    def nodes(self) -> list[Node]:
        return [Node(node_id=node, address="a", cpus=2, gpus=0) for node in self.alive]

    def reserve(self, bundles: list[Any], seconds: float) -> str:
        self.reserved.append(bundles)
        if not self.room:
            raise ConfigError("the cluster has no room")
        return "a group of its own"

    def home(self, group: str, bundle: int) -> str:
        assert group == "a group of its own"
        return self.alive[bundle]

    def actor(self, cls: type, *args: Any, seat: Any, called: str, threads: int) -> Actor:
        self.seats[called] = seat
        actor = self.made[called] = Actor(**dict(self.ready))
        return actor

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)


class Services:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def links(self, node: str) -> None:
        self.asked.append(node)

    def drop_dead(self) -> list[str]:
        return []


class Stage:
    """A team of two whose schedule answers at once; a lost worker had delivered ``delivered`` groups."""

    def __init__(self, restarts: int = 1, delivered: int = 0, engine: float = 60.0, load: float = 60.0, weights: float = 60.0) -> None:
        self.session, self.inbox, self.said, self.lost = Session(), DriverInbox(), list[str](), list[str]()
        self.services = Services()
        schedule = Actor(join=lambda: None, worker_lost=lambda: (3, delivered))
        places = Places(trainers=("n",), producers=("n", "n"), cpus=0.5, trainer_gpus=0, producer_gpus=0)
        self.team = ProducerTeam(
            self.session,  # type: ignore[arg-type]
            self.inbox,
            self.services,  # type: ignore[arg-type]
            schedule,
            None,  # type: ignore[arg-type]
            places,
            patience=Patience(restarts=restarts, engine_seconds=engine, load_seconds=load, weights_seconds=weights),
            say=self.said.append,
        )
        self.team.on_loss = self.lost.append
        self.team.create(None)
        self.team.connect("address")
        self.team.run(None)
        self.inbox.drain()

    def die(self, name: str, error: Exception | None = None) -> None:
        self.session.made[name].calls["run"][0].fail(error or ActorDiedError())

    def serve(self, *names: str) -> None:
        for name in names:
            self.session.made[name].calls["serves"][0].give(0)
        self.inbox.drain()


def test_who_dies_is_replaced_under_a_new_name() -> None:
    stage = Stage()
    stage.serve("producer-0", "producer-1")
    stage.die("producer-0")
    stage.inbox.drain()
    assert "producer-0.1" in stage.session.made
    assert stage.lost == ["producer-0"]
    assert "producer-0 was lost" in stage.said[0]
    assert "producer-0.1 takes its place" in stage.said[0]
    assert len(stage.team.serving) == 1


def test_who_hangs_is_replaced_and_killed() -> None:
    stage = Stage()
    stage.serve("producer-0", "producer-1")
    hung = stage.session.made["producer-0"]
    hung.calls["guard"][0].fail(RunError("its engine has not come back"))
    stage.inbox.drain()
    assert "producer-0 was lost (its engine has not come back" in stage.said[0]
    assert "producer-0.1" in stage.session.made
    assert stage.session.killed == [hung]
    hung.calls["run"][0].fail(ActorDiedError())  # what Ray says of it afterwards
    stage.inbox.drain()
    assert "producer-0.2" not in stage.session.made


def test_who_takes_a_place_and_never_serves_is_replaced() -> None:
    stage = Stage(restarts=2, weights=0.0)
    stage.serve("producer-0", "producer-1")
    stage.die("producer-0")
    stage.inbox.drain()
    stage.inbox.until(lambda: "producer-0.2" in stage.session.made, 20.0)
    assert any("producer-0.1 was lost (it served no weights within 0 s)" in said for said in stage.said)


def test_who_takes_a_place_and_is_never_ready_is_replaced() -> None:
    stage = Stage(restarts=2, load=0.0)
    stage.serve("producer-0", "producer-1")
    stage.session.ready.pop("connect")  # from here on nobody is connected
    stage.die("producer-0")
    stage.inbox.drain()
    stage.inbox.until(lambda: "producer-0.2" in stage.session.made, 20.0)
    assert any("producer-0.1 was lost (its model was not loaded after 0 s;" in said for said in stage.said)


def test_failures_in_a_row_end_in_giving_up_and_the_others_go_on() -> None:
    stage = Stage(restarts=1)
    stage.die("producer-0")
    stage.inbox.drain()
    stage.die("producer-0.1", RunError("the engine died"))
    stage.inbox.drain()
    assert "goes on with 1 producer" in stage.said[-1]
    assert any("producer-0 was given up" in remark and "the engine died" in remark for remark in stage.team.remarks())


def test_who_delivered_something_begins_anew() -> None:
    stage = Stage(restarts=1, delivered=4)
    name = "producer-0"
    for life in range(1, 5):
        stage.die(name)
        stage.inbox.drain()
        name = f"producer-0.{life}"
    assert name in stage.session.made


def test_two_that_die_together_are_not_taken_for_nobody_left() -> None:
    stage = Stage(restarts=0)
    stage.die("producer-0")
    stage.die("producer-1")
    with pytest.raises(WorkerLostError, match="no producer is left"):
        stage.inbox.drain()
    assert "goes on with 1 producer" in stage.said[0]  # the second one, which was not judged yet


def test_wrong_weights_end_the_run_and_not_the_producer() -> None:
    stage = Stage()
    stage.inbox._seeking = True  # no death stands behind it
    stage.die("producer-0", WeightsError("producer-0 does not serve version 3"))
    with pytest.raises(WeightsError, match="does not serve version 3"):
        stage.inbox.drain()


@pytest.mark.parametrize("error", [RewardBudgetError("7 of the last 50 reward verdicts failed"), DataError("train.jsonl:3: no gold")])
@pytest.mark.parametrize("where", ["run", "guard"])
def test_what_would_happen_on_any_producer_ends_the_run(error: RunError | DataError, where: str) -> None:
    stage = Stage()
    stage.serve("producer-0", "producer-1")
    stage.session.made["producer-0"].calls[where][0].fail(error)
    with pytest.raises(type(error), match=str(error)):
        stage.inbox.drain()
    assert list(stage.session.made) == ["producer-0", "producer-1"], "it was replaced"
    assert stage.lost == []


def test_who_does_not_serve_in_time_is_named() -> None:
    stage = Stage()
    stage.serve("producer-1")
    with pytest.raises(WeightsError, match=r"^producer-0 did not serve version 0 within 0.01 s"):
        stage.team.wait_until_serving(0, 0.01)


def test_an_old_actor_s_late_words_are_not_heard() -> None:
    stage = Stage()
    stage.die("producer-0")
    stage.inbox.drain()
    stage.session.made["producer-0"].calls["serves"][0].give(0)
    stage.inbox.drain()
    assert not stage.team.serving


def test_who_loses_the_coordinator_is_not_replaced() -> None:
    """The driver itself is told of that death, and ends the run."""
    stage = Stage()
    stage.serve("producer-0", "producer-1")
    stage.die("producer-0", CalleeDiedError(COORDINATOR))
    stage.inbox.drain()
    assert list(stage.session.made) == ["producer-0", "producer-1"]
    assert stage.said == stage.lost == []


def test_who_loses_a_service_of_its_node_is_replaced_and_the_service_is_named() -> None:
    stage = Stage()
    stage.serve("producer-0", "producer-1")
    stage.die("producer-0", CalleeDiedError("the store of its node"))
    stage.inbox.drain()
    assert stage.said[0].startswith("warning: producer-0 was lost (the process of the store of its node died);")
    assert "producer-0.1" in stage.session.made


def test_who_loses_its_node_moves_to_one_that_ray_chooses() -> None:
    stage = Stage(restarts=5)
    stage.serve("producer-0", "producer-1")
    stage.session.alive = ["other"]
    stage.die("producer-0")
    stage.inbox.drain()
    assert stage.session.reserved == [[(None, 0.5, 0)]]
    seat = stage.session.seats["producer-0.1"]
    assert (seat.group, seat.bundle) == ("a group of its own", 0)
    assert stage.services.asked[-1] == "other"


def test_who_loses_its_node_and_finds_no_room_is_given_up() -> None:
    stage = Stage(restarts=5)
    stage.serve("producer-0", "producer-1")
    stage.session.alive, stage.session.room = ["other"], False
    stage.die("producer-0")
    stage.inbox.drain()
    assert "no node has room for another; the run goes on with 1 producer" in stage.said[-1]
