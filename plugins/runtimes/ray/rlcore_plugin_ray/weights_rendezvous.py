"""Where a publisher announces versions to receivers on any host: one small actor that keeps the newest word and lets receivers wait for it.

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
"""Seconds that an answer may take beyond the time that the board itself was told to wait."""
_AGAIN = 1.0
"""Seconds until a board that is out of reach is asked again."""


@dataclass(frozen=True, slots=True)
class RendezvousAddress:
    """The board of a publisher, and who that is, for messages."""

    board: Any
    trainer: str


class WeightsRendezvous:
    """The newest (number, word), and who is here. A receiver parks one call; nobody asks twice.

    A receiver is known by a token of its own, because one that was started again has the old one's name.
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
        """Make it the newest; what was said before is forgotten, and its references with it."""
        await self._change(lambda: self.__dict__.update(_number=number, _word=word))

    async def after(self, token: str, number: int, broke: str = "") -> tuple[int, Any] | None:
        """Wait for a word newer than this number; None where the receiver has left meanwhile. ``broke``: why its last transfer failed."""
        self._parked.add(token)
        self._reasons[token] = broke
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._number > number or token not in self._present)
            self._parked.discard(token)
            return (self._number, self._word) if token in self._present else None

    async def join(self, token: str, name: str) -> None:
        """A receiver is here. An older one of that name is gone: it was started again."""
        await self.gone(name)
        await self._change(lambda: self._present.update({token: name}))

    async def leave(self, token: str) -> None:
        """A receiver goes."""
        self._reasons.pop(token, None)
        await self._change(lambda: self._present.pop(token, None))

    async def gone(self, name: str) -> None:
        """The receiver of this producer died."""
        for token in [known for known, whose in self._present.items() if whose == name]:
            await self.leave(token)

    async def here(self, token: str, number: int, seconds: float) -> bool:
        """A receiver has read this word and would take part in its transfer: wait until ``gathered`` has decided, and say whether the
        transfer begins. A receiver that joined the group earlier would wait in it until its own deadline if another one left."""
        await self._change(lambda: self._here.update({token: number}))
        await self._until(lambda: self._decided[0] >= number or token not in self._present, seconds)
        begins = self._decided == (number, True)  # for one that has left since too: the others count on it
        if not begins:
            self._here.pop(token, None)
        return begins

    async def members(self) -> dict[str, str]:
        """Token -> name of all that are here."""
        return dict(self._present)

    async def gathered(self, number: int, tokens: list[str], seconds: float) -> dict[str, str] | None:
        """Wait until all of these would take part in a transfer: {} then, and it begins; None as soon as one has left; else the names of
        those missing."""

        def missing() -> dict[str, str]:
            return {token: self._present.get(token, "") for token in tokens if self._here.get(token, -1) < number}

        await self._until(lambda: not missing() or not set(tokens) <= set(self._present), seconds)
        found = missing() if set(tokens) <= set(self._present) else None
        await self._change(lambda: self.__dict__.update(_decided=(number, found == {})))
        return found

    async def others(self, than: list[str], seconds: float) -> bool:
        """Wait until others are here than these tokens; False where ``seconds`` pass without that."""
        return await self._until(lambda: set(self._present) != set(than), seconds)

    async def busy(self, tokens: list[str], seconds: float) -> list[str]:
        """Give these so long to come back from a transfer that failed; the names of those that did not."""
        await self._until(lambda: set(tokens) & set(self._present) <= self._parked, seconds)
        return sorted(self._present[token] for token in tokens if token in self._present and token not in self._parked)

    async def reasons(self) -> dict[str, str]:
        """Name -> why its last transfer failed, of those who came back from one that did."""
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
    """A board on this node, without a share of its processors. Its calls may be repeated, and Ray does where it was out of reach for a
    moment, as while another node goes away."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return (
        ray.remote(WeightsRendezvous)
        .options(num_cpus=0, max_concurrency=_MAX_WAITING_CALLS, max_task_retries=3, scheduling_strategy=here)
        .remote()
    )


class RendezvousClient:
    """Calls to a board, and errors that say who asked."""

    def __init__(self, board: Any, who: str, deadline: float) -> None:
        self.board = board
        self._who = who
        self._deadline = deadline

    def now(self, method: str, *arguments: Any, waits: float = 0.0) -> Any:
        """The answer; ``waits``: seconds that the board takes on purpose. WeightsError where none comes in time, or the board is gone."""
        try:
            return ray.get(getattr(self.board, method).remote(*arguments), timeout=waits + max(self._deadline, _SPARE))
        except ray.exceptions.GetTimeoutError as error:
            raise WeightsError(
                f"{self._who} got no answer ({method}) from the board that announces weights; look whether the trainer's node is "
                "overloaded, or give it more time with --weights-deadline"
            ) from error
        except ray.exceptions.RayActorError as error:
            raise self._unreachable(method, error) from error

    def parked(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        """The answer, however long it takes; None where the board has ended. WeightsError where it lives, and is out of reach for as long
        as the deadline; GetTimeoutError after ``timeout`` seconds."""
        lost = 0.0
        while True:
            began = time.monotonic()
            try:
                return ray.get(getattr(self.board, method).remote(*arguments), timeout=timeout)
            except ray.exceptions.ActorUnavailableError as error:
                now = time.monotonic()
                if not lost or now - began > _SPARE:  # it was in reach until now
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
