"""Calls between actors without waiting for them: what came of a call reaches a function, and errors arrive as what was raised."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from ray.exceptions import ActorUnschedulableError, NodeDiedError, OutOfMemoryError, OwnerDiedError, RayActorError, RayTaskError

from rlcore.api import Group, Prompt, Rollout, RunError
from rlcore.api.runtime import Arrival

__all__ = ["COORDINATOR", "Answered", "CalleeDiedError", "Links", "answer", "gist", "is_death", "is_out_of_memory", "outcome", "unwrapped"]

COORDINATOR = "the coordinator"
_GIST = 300
_LESS_MEMORY = "lower -tmbs, -imbs or --tokens-per-forward, or end other programs there"

Answered = Callable[[Any, BaseException | None], None]
"""Called once, from any thread, with the value of a call or with its error."""


def answer(ref: Any, then: Answered) -> None:
    """Have ``then`` called with what comes of a remote call."""
    ref.future().add_done_callback(lambda future: then(*outcome(future)))


def outcome(future: Future[Any]) -> tuple[Any, BaseException | None]:
    """(value, None) or (None, what was raised on the other side)."""
    error = future.exception()
    return (None, unwrapped(error)) if error is not None else (future.result(), None)


def unwrapped(error: BaseException) -> BaseException:
    """What was raised on the other side, without Ray's wrapping."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    return error


def gist(error: BaseException) -> str:
    """What it says, in one line of bounded length."""
    if is_out_of_memory(error):  # Ray's own text has a hundred lines
        used = re.search(r"was ([\d.]+GB used / [\d.]+GB)", str(error))
        held = f", {used[1]}" if used else ""
        return f"Ray killed its process because its node ran out of memory{held}; {_LESS_MEMORY}"
    return shorten(str(error), _GIST, placeholder=" …")


def is_death(error: BaseException) -> bool:
    """Whether it says that an actor, or its node, is gone."""
    deaths = RayActorError | ActorUnschedulableError | NodeDiedError | OutOfMemoryError | OwnerDiedError
    return isinstance(error, deaths)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Ray killed an actor because memory of its node ran out."""
    return isinstance(error, OutOfMemoryError) or (isinstance(error, RayActorError) and "node running low on memory" in str(error))


class CalleeDiedError(RunError):
    """An actor that a producer called has died; its message is what that actor is called."""


def _naming(callee: str, then: Answered) -> Answered:
    """Have ``then`` told of the death of the actor that was called as a CalleeDiedError: Ray's error does not say whose death it was."""
    return lambda value, error: then(value, CalleeDiedError(callee) if error is not None and is_death(error) else error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Whom a producer talks to: the schedule, and store and judge of its node. Actor handles."""

    schedule: Any
    store: Any
    judge: Any

    def lease(self, worker: str, k: int, serving: int, then: Answered) -> None:
        """``ScheduleService.lease``."""
        answer(self.schedule.lease.remote(worker, k, serving), _naming(COORDINATOR, then))

    def serving(self, worker: str, version: int) -> None:
        """``ScheduleService.serving``; nobody waits for it."""
        self.schedule.serving.remote(worker, version)

    def deliver(self, worker: str, arrivals: Sequence[Arrival], groups: Sequence[Group], then: Answered) -> None:
        """``GroupStore.deliver``."""
        answer(self.store.deliver.remote(worker, arrivals, groups), _naming("the store of its node", then))

    def score(self, prompt: Prompt, rollouts: Sequence[Rollout], counted: bool, then: Answered) -> None:
        """``JudgeHost.score``."""
        answer(self.judge.score.remote(prompt, rollouts, counted), _naming("the judge of its node", then))
