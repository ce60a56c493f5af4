"""A fake engine that takes its time, and can be told to die: the source of a test plugin, read by ``conftest.py``.

Each producer of a run sits on a slot, a file that it locks; a producer that replaces a dead one finds the dead one's slot free and sits
there. So a slot is one producer of the run, however often it is started anew.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path
from typing import IO

from pydantic import Field

from rlcore.api import Completion, InferenceBackendSpec, InferenceContext, hookimpl
from rlcore.testing import FakeInference, FakeInferenceOptions

rlcore_api = "2.0"


class SlowOptions(FakeInferenceOptions):
    """Options of the ``slow`` inference backend."""

    steps_per_poll: int = Field(default=1, ge=1, description="Decode steps of every running request in one poll.")
    seconds: float = Field(default=0.02, ge=0, description="Of one poll with work.")
    slots: str = Field(default="", description="Folder of the slots.")
    doomed: tuple[int, ...] = Field(default=(), description="Slots whose producers die.")
    polls: int = Field(default=0, ge=0, description="Polls with work that a doomed producer lives.")
    deaths: int = Field(default=0, ge=0, description="Until so many doomed producers died, the others take twenty times as long.")
    hangs: bool = Field(default=False, description="Whether it hangs for ever then, instead; the one that takes its place does not.")


class SlowInference(FakeInference):
    """A fake engine that sleeps before every poll with work, and kills its process in time where its slot is doomed."""

    def __init__(self, context: InferenceContext, options: SlowOptions) -> None:
        super().__init__(context, options)
        self._seconds = options.seconds
        self._left = options.polls
        self._hangs = options.hangs
        self._deaths = options.deaths
        self._folder = Path(options.slots)
        self._slot, self._lock = _sit(Path(options.slots)) if options.slots else (-1, None)
        self._hung = self._folder / f"{self._slot}.hung"
        self._doomed = self._slot in options.doomed and not self._hung.exists()

    def poll(self, timeout: float) -> list[Completion]:
        """One slow step."""
        if self._running or self._waiting:
            if self._lock is not None and not self._lock.tell():
                self._lock.write("has worked")
                self._lock.flush()
            time.sleep(self._seconds if self._doomed or self._died() >= self._deaths else 20 * self._seconds)
            self._left -= 1
            if self._doomed and self._left < 0:
                if self._hangs:
                    self._hung.touch()
                    threading.Event().wait()
                (self._folder / f"{os.getpid()}.died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().poll(0.0)

    def _died(self) -> int:
        return len(list(self._folder.glob("*.died"))) if self._deaths else 0


def _sit(folder: Path) -> tuple[int, IO[str]]:
    """The first free slot, and the open file that holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    for slot in range(1000):
        lock = (folder / str(slot)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
        else:
            return slot, lock
    raise RuntimeError("no free slot")


@hookimpl
def rlcore_register_inference_backends() -> list[InferenceBackendSpec]:
    """The one engine."""
    return [
        InferenceBackendSpec(
            name="slow",
            target="rlcore_plugin_slow:SlowInference",
            config="rlcore_plugin_slow:SlowOptions",
            tokenizer="rlcore.testing.tokens:load_fake_tokenizer",
            summary="The fake, slowed down; its process dies on demand.",
        )
    ]
