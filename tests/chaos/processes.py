"""The processes of a run as /proc shows them: those that one program started, by what they do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "below", "end_all", "local_victims", "ray_victims"]


@dataclass(frozen=True, slots=True)
class Process:
    """One that lives. ``title``: its command line, or what it calls itself."""

    pid: int
    parent: int
    state: str
    title: str

    def signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def lives(self) -> bool:
        """Whether it is there, and no zombie."""
        found = _read(Path("/proc") / str(self.pid))
        return found is not None and found.state != "Z"


def everybody() -> list[Process]:
    """All processes that are no zombies."""
    found = (_read(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [process for process in found if process is not None and process.state != "Z"]


def _read(entry: Path) -> Process | None:
    try:
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    return Process(int(entry.name), int(parent), state, title)


def below(roots: set[int]) -> list[Process]:
    """The descendants of these processes that are still connected with them."""
    known, found = set(roots), list[Process]()
    waiting = everybody()
    while more := [process for process in waiting if process.parent in known]:
        found += more
        known |= {process.pid for process in more}
        waiting = [process for process in waiting if process.pid not in known]
    return found


def local_victims(driver: int) -> dict[str, list[Process]]:
    """Of a run of the runtime ``local``: its processes by kind. A worker has a guard beside it with the same words: its child."""
    children = [process for process in everybody() if process.parent == driver]
    return {
        "producer": [process for process in children if '"name": "producer-' in process.title],
        "rank": [process for process in children if '"name": "trainer rank ' in process.title],
        "reward worker": [process for process in children if "rlcore.rewards.worker" in process.title],
    }


_ACTORS = {
    "producer": "ray::ProducerWorker",
    "rank": "ray::TrainerWorker",
    "judge": "ray::JudgeActor",
    "store": "ray::GroupStore",
    "coordinator": "ray::ScheduleActor",
    "board of the weights": "ray::WeightsRendezvous",
}


def ray_victims(raylets: set[int]) -> dict[str, list[Process]]:
    """Of a run on Ray: the processes below these raylets by kind."""
    processes = below(raylets)
    found = {kind: [process for process in processes if process.title.startswith(title)] for kind, title in _ACTORS.items()}
    return {**found, "reward worker": [process for process in processes if "rlcore.rewards.worker" in process.title]}


def end_all(find: Callable[[], list[Process]], rounds: int = 50) -> Iterator[Process]:
    """SIGKILL to what ``find`` finds, until it finds nothing; those that were there."""
    for _ in range(rounds):
        victims = find()
        if not victims:
            return
        for victim in victims:
            victim.signal(signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(victim.pid, os.WNOHANG)
        yield from victims
