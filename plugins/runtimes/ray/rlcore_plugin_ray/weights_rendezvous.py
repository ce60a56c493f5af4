"""The actor through which a publisher announces versions to receivers on any host. It keeps the newest announcement, and receivers wait for
the next one.

It holds no weights. It belongs to the process that made it, and ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlcore.api import WeightsError
from rlcore_plugin_ray.ray_worker import short_reason

__all__ = ["RendezvousAddress", "RendezvousClient", "WeightsRendezvous", "make_rendezvous"]

_MAX_WAITING_CALLS = 100_000
_SPARE = 30.0
"""The seconds that an answer may take in addition to the time that the board is asked to wait."""
_AGAIN = 1.0
"""The seconds before an unreachable board is asked again."""


@dataclass(frozen=True, slots=True)
class RendezvousAddress:
    """A publisher's board, and the publisher's name for messages."""

    board: Any
    trainer: str


class WeightsRendezvous:
    """The newest (number, announcement), and the present receivers. Each receiver keeps one call open and does not poll.

    A receiver is identified by its own token, because a restarted receiver has the name of its predecessor.
    """

    def __init__(self) -> None:
        self._number = -1
        self._word: Any = None
        self._changed = asyncio.Condition()
        self._present: dict[str, str] = {}
        self._parked: set[str] = set()
        self._here: dict[str, int] = {}
        self._decided = (-1, False)
        self._reasons: dict[str, str] = {}

    async def post(self, number: int, word: Any) -> None:
        """Publish an announcement and drop the last one with its references."""
        await self._change(lambda: self.__dict__.update(_number=number, _word=word))

    async def after(self, token: str, number: int, broke: str = "") -> tuple[int, Any] | None:
        """Wait for an announcement newer than this number; return None if the receiver leaves meanwhile. ``broke``: why the receiver's last
        transfer failed."""
        self._parked.add(token)
        self._reasons[token] = broke
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._number > number or token not in self._present)
            self._parked.discard(token)
            return (self._number, self._word) if token in self._present else None

    async def join(self, token: str, name: str) -> None:
        """Register a receiver. An older one of that name is gone, because it was restarted."""
        await self.gone(name)
        await self._change(lambda: self._present.update({token: name}))

    async def leave(self, token: str) -> None:
        """Remove a receiver."""
        self._reasons.pop(token, None)
        await self._change(lambda: self._present.pop(token, None))

    async def gone(self, name: str) -> None:
        """Remove the receiver of a producer that died."""
        for token in [known for known, whose in self._present.items() if whose == name]:
            await self.leave(token)

    async def here(self, token: str, number: int, seconds: float) -> bool:
        """Record that a receiver has read this announcement and is ready; wait until ``gathered`` has decided, and return whether the
        transfer begins. If a receiver joined the group earlier and another one left, it would wait in the group until its own deadline."""
        await self._change(lambda: self._here.update({token: number}))
        await self._until(lambda: self._decided[0] >= number or token not in self._present, seconds)
        begins = self._decided == (number, True)  # also for a receiver that has left since, because the others rely on it
        if not begins:
            self._here.pop(token, None)
        return begins

    async def members(self) -> dict[str, str]:
        """Return token -> name of all present receivers."""
        return dict(self._present)

    async def gathered(self, number: int, tokens: list[str], seconds: float) -> dict[str, str] | None:
        """Wait until all of these receivers are ready for a transfer. Return {} if they are, which begins it; None as soon as one has left;
        else the names of those that are missing after ``seconds``."""

        def missing() -> dict[str, str]:
            return {token: self._present.get(token, "") for token in tokens if self._here.get(token, -1) < number}

        await self._until(lambda: not missing() or not set(tokens) <= set(self._present), seconds)
        found = missing() if set(tokens) <= set(self._present) else None
        await self._change(lambda: self.__dict__.update(_decided=(number, found == {})))
        return found

    async def others(self, than: list[str], seconds: float) -> bool:
        """Wait until the present receivers differ from these tokens; return False if they do not within ``seconds``."""
        return await self._until(lambda: set(self._present) != set(than), seconds)

    async def busy(self, tokens: list[str], seconds: float) -> list[str]:
        """Wait at most ``seconds`` until these receivers return from a transfer that failed; return the names of those that do not."""
        await self._until(lambda: set(tokens) & set(self._present) <= self._parked, seconds)
        return sorted(self._present[token] for token in tokens if token in self._present and token not in self._parked)

    async def reasons(self) -> dict[str, str]:
        """Return name -> reason for the receivers that returned from a failed transfer."""
        return {self._present[token]: broke for token, broke in self._reasons.items() if broke and token in self._present}

    async def _change(self, change: Callable[[], object]) -> None:
        async with self._changed:
            change()
            self._changed.notify_all()

    async def _until(self, true: Callable[[], bool], seconds: float) -> bool:
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(true), seconds)
            return true()


def make_rendezvous() -> Any:
    """Make a board on this node that reserves no CPU. Ray repeats its calls if the board is unreachable for a moment, for example while
    another node goes away; repeating them does no harm."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return (
        ray.remote(WeightsRendezvous)
        .options(num_cpus=0, max_concurrency=_MAX_WAITING_CALLS, max_task_retries=3, scheduling_strategy=here)
        .remote()
    )


class RendezvousClient:
    """Calls to a board, with errors that name the caller."""

    def __init__(self, board: Any, who: str, deadline: float) -> None:
        self.board = board
        self._who = who
        self._deadline = deadline

    def now(self, method: str, *arguments: Any, waits: float = 0.0) -> Any:
        """Call the board and return the answer. ``waits``: the seconds for which the board itself waits. Raise WeightsError if no answer
        comes in time, or the board is gone."""
        try:
            return ray.get(getattr(self.board, method).remote(*arguments), timeout=waits + max(self._deadline, _SPARE))
        except ray.exceptions.GetTimeoutError as error:
            raise WeightsError(
                f"{self._who} got no answer ({method}) from the board that announces weights; check whether the trainer's node is "
                "overloaded, or raise --weights-deadline"
            ) from error
        except ray.exceptions.RayActorError as error:
            raise self._unreachable(method, error) from error

    def parked(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        """Wait for an answer of the board without a limit; return None if the board has ended. Raise WeightsError if it is alive but
        unreachable for the whole deadline. Raise GetTimeoutError after ``timeout`` seconds."""
        lost = 0.0
        while True:
            began = time.monotonic()
            try:
                return ray.get(getattr(self.board, method).remote(*arguments), timeout=timeout)
            except ray.exceptions.ActorUnavailableError as error:
                now = time.monotonic()
                if not lost or now - began > _SPARE:  # it was reachable until now
                    lost = now
                if now - lost >= self._deadline:
                    raise self._unreachable(method, error) from error
                time.sleep(_AGAIN)
            except ray.exceptions.RayActorError:
                return None

    def _unreachable(self, method: str, error: Exception) -> WeightsError:
        return WeightsError(
            f"{self._who} cannot reach the board that announces weights ({method}): the trainer, its node or the network is gone "
            f"({short_reason(error)})"
        )
