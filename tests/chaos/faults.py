"""What is done to a run, and how it can be told that the run is over it."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.processes import Process, local_victims, ray_victims
from tests.chaos.raylets import Link, Raylets
from tests.chaos.watching import Run
from tests.integration.ray.faults import processes_of

__all__ = ["SCHEDULES", "Fault", "Scene"]

KILL, STOP, TERM, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT


@dataclass(slots=True)
class Scene:
    """Where it happens. ``cluster`` and ``link`` are there on Ray only."""

    run: Run
    chance: random.Random
    cluster: Raylets | None = None
    link: Link | None = None
    hurt: list[Process] = field(default_factory=list)
    """Processes that the last fault has hit."""
    lost: set[str] = field(default_factory=set)
    """Nodes that are gone, stopped or cut off."""

    @property
    def address(self) -> str | None:
        """Of the cluster that the run joins."""
        return self.cluster.address if self.cluster is not None else None

    def victims(self, kind: str, nodes: Sequence[str] = ()) -> list[Process]:
        """Processes of a kind, on these nodes alone if some are given; by age."""
        if self.cluster is None:
            found = local_victims(self.run.process.pid)[kind]
        else:
            found = ray_victims(self.cluster.pids)[kind]
            found = [process for process in found if not nodes or self.cluster.name_of(process) in nodes]
        return sorted(found, key=lambda process: process.pid)

    def leftovers(self) -> list[str]:
        """Processes of the run that live, its driver's excepted."""
        of_cluster = ray_victims(self.cluster.pids).values() if self.cluster is not None else ()
        found = {process.pid: process.title for process in processes_of(self.run.project.folder) if process.pid != self.run.process.pid}
        return [title[:200] for title in ({process.pid: process.title for some in of_cluster for process in some} | found).values()]

    @property
    def raylets(self) -> Raylets:
        """The cluster of a run on Ray."""
        assert self.cluster is not None
        return self.cluster


Over = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``inject`` returns what tells that the run has noticed, beside its steps. ``mend``: afterwards, before the next one. ``ends``: the
    run is expected to end, and the same command resumes it. ``waits``: it comes once all producers are at work. ``last``: what it
    takes is given back to no run that is under way, so the next fault comes to another one."""

    what: str
    how: str
    inject: Callable[[Scene], Over]
    mend: Callable[[Scene], None] = lambda scene: None
    ends: bool = False
    waits: bool = True
    last: bool = False

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.what}, {self.how}"


def process_fault(kind: str, number: int) -> Fault:
    """SIGKILL, SIGTERM or SIGSTOP to one process of a kind. It is over once that process is gone."""

    def inject(scene: Scene) -> Over:
        victims = scene.victims(kind)
        if not victims:
            raise LookupError(f"the run has no {kind}")
        victim = scene.chance.choice(victims)
        scene.hurt = [victim]
        victim.signal(number)
        return lambda: not victim.lives

    return Fault(what=kind, how=signal.Signals(number).name, inject=inject)


def driver_ended(number: int) -> Fault:
    """SIGKILL or SIGTERM to the program itself."""

    def inject(scene: Scene) -> Over:
        scene.hurt = []
        scene.run.driver.signal(number)
        return lambda: scene.run.exit_code is not None

    return Fault(what="driver", how=signal.Signals(number).name, inject=inject, ends=True)


_STOPPED_SECONDS = 5.0


def driver_stopped() -> Fault:
    """SIGSTOP to the program itself, and SIGCONT after some seconds: nothing else can notice."""

    def inject(scene: Scene) -> Over:
        scene.hurt = []
        scene.run.driver.signal(STOP)
        time.sleep(_STOPPED_SECONDS)
        scene.run.driver.signal(CONT)
        return lambda: True

    return Fault(what="driver", how=f"SIGSTOP for {_STOPPED_SECONDS:g} s", inject=inject)


def _another_cluster(scene: Scene) -> None:
    scene.raylets.close()
    scene.raylets.head()
    whole(scene)


def gcs_fault(number: int) -> Fault:
    """To the server that knows the cluster: the run ends, a new cluster is made, and the run goes on there."""

    def inject(scene: Scene) -> Over:
        victim = scene.raylets.gcs
        scene.hurt = [victim]
        victim.signal(number)
        return lambda: False

    return Fault(what="GCS", how=signal.Signals(number).name, inject=inject, mend=_another_cluster, ends=True)


def head_raylet_killed() -> Fault:
    """The driver had joined by it, and the coordinator is on its node; the GCS beside it lives, and so do the other nodes."""

    def inject(scene: Scene) -> Over:
        scene.hurt = []
        warned = _warned(scene)
        scene.raylets.node("head").signal(KILL)
        return warned

    return Fault(what="raylet of the head", how="SIGKILL", inject=inject, last=True)


def head_raylet_stopped() -> Fault:
    """Ray does not let go of a raylet that is stopped: the run ends."""

    def inject(scene: Scene) -> Over:
        victim = scene.raylets.node("head")
        scene.hurt = [victim]
        victim.signal(STOP)
        return lambda: False

    return Fault(what="raylet of the head", how="SIGSTOP", inject=inject, mend=_another_cluster, ends=True)


RANKS, FIRST, SECOND, CABLE = "ranks", "first", "second", "cable"
CORES = {RANKS: 2, FIRST: 1, SECOND: 1, CABLE: 1}
"""Cores of the nodes beside the head, which has none: the ranks fill one, and each other has room for one producer. One more node would
have a placement for a producer whose node is lost; there is none."""


_STEPS_AFTER = 3


def whole(scene: Scene) -> None:
    """Start the nodes of a cluster that are missing; if the head's is, all of them."""
    if scene.cluster is None:
        return
    if not scene.raylets.has_head():
        scene.raylets.close()
        scene.raylets.head()
    for name in (RANKS, FIRST, *([CABLE] if scene.link else [SECOND])):
        if name not in scene.raylets.names:
            scene.raylets.add(name, CORES[name], scene.link if name == CABLE else None)


def _warned(scene: Scene) -> Over:
    """True once the run has said something and made some steps since: what it says may be that it goes back."""
    mark, steps = scene.run.mark(), list[int]()

    def over() -> bool:
        if not steps and any(line.startswith("warning:") for line in scene.run.said(mark)):
            steps.append(len(scene.run.seen))
        return bool(steps) and len(scene.run.seen) >= steps[0] + _STEPS_AFTER

    return over


def node_lost(name: str, how: str, do: Callable[[Scene], None]) -> Fault:
    """A node that is lost; it is over once the run has said something of it."""

    def inject(scene: Scene) -> Over:
        scene.hurt, scene.lost = [], scene.lost | {name}
        warned = _warned(scene)
        do(scene)
        return warned

    return Fault(what=f"node of {'the ranks' if name == RANKS else 'a producer'}", how=how, inject=inject, mend=whole)


def node_added(name: str, how: str, do: Callable[[Scene], None] = lambda scene: None) -> Fault:
    """A node that takes the place of the lost one; it is over once each producer has a placement again."""

    def inject(scene: Scene) -> Over:
        scene.hurt = []
        do(scene)
        scene.raylets.forget(name)
        scene.lost.discard(name)
        whole(scene)
        return lambda: scene.run.working() >= scene.run.project.shape.producers

    return Fault(what="node", how=how, inject=inject, waits=False)


def _signalled(name: str, number: int) -> Callable[[Scene], None]:
    return lambda scene: scene.raylets.node(name).signal(number)


def _replaced(scene: Scene) -> None:
    scene.raylets.node(RANKS).signal(KILL)
    scene.raylets.forget(RANKS)
    scene.lost.discard(RANKS)
    whole(scene)


def _link(scene: Scene) -> Link:
    assert scene.link is not None
    return scene.link


def _blinks(scene: Scene) -> None:
    _link(scene).down()
    time.sleep(2.0)
    _link(scene).up()


def link_blinks() -> Fault:
    """Shorter than what makes a node dead."""

    def inject(scene: Scene) -> Over:
        scene.hurt = []
        _blinks(scene)
        return lambda: True

    return Fault(what="link of a node", how="down for 2 s", inject=inject)


SCHEDULES: dict[str, list[Fault]] = {
    "local-quiet": [],
    "ray-quiet": [],
    "local": [process_fault(kind, number) for kind in ("producer", "rank", "reward worker") for number in (KILL, TERM, STOP)]
    + [driver_stopped(), driver_ended(TERM), driver_ended(KILL)],
    "ray-processes": [
        process_fault(kind, number)
        for kind in ("producer", "rank", "judge", "reward worker", "store", "coordinator", "board of the weights")
        for number in (KILL, STOP)
    ]
    + [driver_ended(KILL)],
    "ray-nodes": [
        node_lost(FIRST, "raylet SIGKILL", _signalled(FIRST, KILL)),
        node_added(FIRST, "added after SIGKILL"),
        node_lost(FIRST, "raylet SIGSTOP", _signalled(FIRST, STOP)),
        node_added(FIRST, "added after SIGSTOP"),
        node_lost(FIRST, "removed by ray stop", _signalled(FIRST, signal.SIGTERM)),
        node_added(FIRST, "another one added"),
        link_blinks(),
        node_lost(CABLE, "link down", lambda scene: _link(scene).down()),
        node_added(CABLE, "link up, and raylet begun again", lambda scene: _link(scene).up()),
        node_lost(RANKS, "raylet SIGKILL, another one added", _replaced),
    ],
    "ray-head": [
        gcs_fault(KILL),
        gcs_fault(STOP),
        head_raylet_stopped(),
        head_raylet_killed(),
    ],
}
