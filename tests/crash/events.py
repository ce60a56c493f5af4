"""What a run does, event by event, so that it can be killed before any of them: calls of the coordinator, and operations on files."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlcore.schedule import Coordinator
from rlcore.schedule.prompt_line import PromptPlace

__all__ = ["Events", "open_prompts"]

_CALLS = ("lease", "deliver", "next_batch", "updated", "state")
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Events:
    """Counts the events of this process from 1 on, and ends it by SIGKILL before event number ``fatal`` (0: never).

    Before each call of the coordinator, every prompt that was leased must have ended or be open; AssertionError otherwise.

    ``folder``: files below it count. ``told`` is called with the name of the event before the process ends. There is no way back:
    a process that has these hooks is a child that runs once; in what it forks nothing counts. Nothing is synchronised with the disk: a kill
    loses nothing that was written.
    """

    def __init__(self, folder: Path, fatal: int, told: Callable[[str], None]) -> None:
        self._folder = folder
        self._fatal, self._told = fatal, told
        self._lock, self._process = threading.Lock(), os.getpid()
        self.seen: list[str] = []

    def watch(self) -> None:
        """From here on every event counts."""
        for name in _CALLS:
            setattr(Coordinator, name, self._balanced(self._counted(getattr(Coordinator, name), f"coordinator {name}"), name))
        os.fsync = self._counted(lambda descriptor: None, "fsync")
        sys.addaudithook(self._audited)

    def _counted(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self._happened(name)
            return call(*arguments, **named)

        return counted

    def _balanced(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def balanced(coordinator: Coordinator, *arguments: Any, **named: Any) -> Any:
            open_ones = open_prompts(coordinator)
            counted = sum(episode.open for ledger in coordinator.ledgers for episode in ledger.episodes.values())
            assert len(open_ones) == counted, f"before {name}, {counted} prompts are open in the ledger, and {len(open_ones)} are held"
            assert len(set(open_ones)) == counted, f"before {name}, a prompt is held twice: {sorted(open_ones)}"
            return call(coordinator, *arguments, **named)

        return balanced

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITES:
                return
        elif event in _CHANGES:
            path = arguments[0]
        else:
            return
        if isinstance(path, str | os.PathLike) and (place := Path.cwd() / path).is_relative_to(self._folder):
            self._happened(f"{event.removeprefix('os.')} {place.name}")

    def _happened(self, name: str) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            self.seen.append(name)
            if len(self.seen) == self._fatal:
                self._told(name)
                os.kill(os.getpid(), signal.SIGKILL)


def open_prompts(coordinator: Coordinator) -> list[PromptPlace]:
    """Each issue of a prompt that was leased, delivered and not trained, or given back."""
    return [*(held.place for held in coordinator._held.values()), *coordinator._line._returned]
