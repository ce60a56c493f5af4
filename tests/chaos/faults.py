"""What is done to a run, and how it can be told that the run is over it."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.processes import Process, local_victims, ray_victims
from tests.chaos.raylets import Link, Raylets
from tests.chaos.watching import Run

__all__ = ["SCHEDULES", "Fault", "Scene"]

KILL, STOP, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT


@dataclass(slots=True)
class Scene:
    """Where it happens. ``cluster`` and ``link`` are there on Ray only."""

    run: Run
    chance: random.Random
    cluster: Raylets | None = None
    link: Link | None = None
    hurt: list[Process] = field(default_factory=list)
    """Processes that the last fault has hit."""

    def victims(self, kind: str, nodes: Sequence[str] = ()) -> list[Process]:
        """Processes of a kind, on these nodes alone if some are given; by age."""
        if self.cluster is None:
            found = local_victims(self.run.process.pid)[kind]
        else:
            found = ray_victims(self.cluster.pids)[kind]
            found = [process for process in found if not nodes or self.cluster.name_of(process) in nodes]
        return sorted(found, key=lambda process: process.pid)

    @property
    def raylets(self) -> Raylets:
        """The cluster of a run on Ray."""
        assert self.cluster is not None
        return self.cluster


Over = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``inject`` returns what tells that the run has noticed, beside its steps. ``mend``: afterwards, before the next one. ``ends``: the
    run is expected to end, and the same command goes on with it."""

    what: str
    how: str
    inject: Callable[[Scene], Over]
    mend: Callable[[Scene], None] = lambda scene: None
    ends: bool = False

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.what}, {self.how}"


def process_fault(kind: str, number: int) -> Fault:
    """SIGKILL or SIGSTOP to one process of a kind. It is over once that process is gone."""

    def inject(scene: Scene) -> Over:
        victims = scene.victims(kind)
        if not victims:
            raise LookupError(f"there is no {kind}")
        victim = scene.chance.choice(victims)
        scene.hurt = [victim]
        victim.signal(number)
        return lambda: not victim.lives

    return Fault(what=kind, how=signal.Signals(number).name, inject=inject)


def driver_killed() -> Fault:
    """SIGKILL to the program itself."""

    def inject(scene: Scene) -> Over:
        scene.hurt = []
        scene.run.driver.signal(KILL)
        return lambda: True

    return Fault(what="driver", how="SIGKILL", inject=inject, ends=True)


def head_fault(what: str, number: int) -> Fault:
    """The head's GCS or its raylet: the run ends, a new cluster is made, and the run goes on there."""

    def inject(scene: Scene) -> Over:
        victim = scene.raylets.gcs if what == "GCS" else scene.raylets.node("head")
        scene.hurt = [victim]
        victim.signal(number)
        return lambda: False

    def mend(scene: Scene) -> None:
        scene.raylets.close()
        scene.raylets.head()
        whole(scene)

    return Fault(what=what, how=signal.Signals(number).name, inject=inject, mend=mend, ends=True)


RANKS, FIRST, SECOND, CABLE = "ranks", "first", "second", "cable"
CORES = {RANKS: 2, FIRST: 1, SECOND: 1, CABLE: 1}
"""Cores of the nodes beside the head, which has none: the ranks fill one, and each other has room for one producer. One more node would
have a seat for a producer whose node is lost; there is none."""


def whole(scene: Scene) -> None:
    """Start the nodes that are missing."""
    for name in (RANKS, FIRST, *([CABLE] if scene.link else [SECOND])):
        if name not in scene.raylets.names:
            scene.raylets.add(name, CORES[name], scene.link if name == CABLE else None)



SCHEDULES: dict[str, list[Fault]] = {
    "local": [process_fault(kind, number) for kind in ("producer", "rank", "reward worker") for number in (KILL, STOP)] + [driver_killed()],
    "ray-processes": [
        process_fault(kind, number)
        for kind in ("producer", "rank", "judge", "reward worker", "store", "coordinator", "board of the weights")
        for number in (KILL, STOP)
    ]
    + [driver_killed()],
    "ray-head": [head_fault("GCS", KILL), head_fault("GCS", STOP), head_fault("raylet of the head", KILL), head_fault("raylet of the head", STOP)],
}
