"""Requests of an engine that cannot keep them during an update. Each is dropped there and sent again after the tokens that it has, so
that the reader of the answer sees one continuous answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rlcore_plugin_serving.partial_completions import OTHER_STOP, NewTokens
from rlcore_plugin_serving.serving_engine import EngineRequest

__all__ = ["ResumedRequests"]


@dataclass
class _ActiveRequest:
    """One request: its first form, the tokens received so far, and its state."""

    ask: EngineRequest
    tokens: list[int] = field(default_factory=list)
    told: int = 0
    """The number of tokens, from the first on, that have a version."""
    interrupted: bool = False
    """We asked the engine to drop it."""
    waits: bool = False
    """The engine has dropped it; ``resume`` returns it."""


class ResumedRequests:
    """The state of all requests; it does not depend on an engine.

    >>> asks = ResumedRequests()
    >>> asks.add([ask])                                  # and queue it
    >>> asks.hand_on(parts)                              # all that comes, on its way to the backend
    >>> engine.abort(asks.interrupt())                   # before an update; the parts that this brings go through hand_on, too
    >>> engine.add(asks.resume())                         # after it; and after a part whose finish is OTHER_STOP
    """

    def __init__(self) -> None:
        self._lives: dict[str, _ActiveRequest] = {}

    def __len__(self) -> int:
        """Return the number of requests that have not ended."""
        return len(self._lives)

    def __contains__(self, name: object) -> bool:
        return name in self._lives

    def add(self, asks: Iterable[EngineRequest]) -> None:
        """Add requests that run in the engine from now on."""
        self._lives |= {ask.name: _ActiveRequest(ask) for ask in asks}

    def interrupt(self, names: Iterable[str] | None = None) -> list[str]:
        """Return the requests to drop in the engine: all that run, or those of ``names`` that run.

        From now on, an abort of one of them counts as an interruption.
        """
        wanted = self._lives if names is None else [name for name in names if name in self._lives]
        found = [name for name in wanted if not self._lives[name].waits]
        for name in found:
            self._lives[name].interrupted = True
        return found

    def hand_on(self, parts: Iterable[NewTokens]) -> list[NewTokens]:
        """Return the parts for the backend: without the ends that an interruption caused, and without requests that have ended."""
        return [self._seen(self._lives[part.name], part) for part in parts if part.name in self._lives]

    def drop(self, names: Iterable[str]) -> list[NewTokens]:
        """Forget those of these requests that wait, and return a part that ends each. The others run: the engine must drop them."""
        waiting = [name for name in names if name in self._lives and self._lives[name].waits]
        for name in waiting:
            del self._lives[name]
        return [NewTokens(name, finish="abort") for name in waiting]

    def resume(self, names: Iterable[str] | None = None) -> list[EngineRequest]:
        """Return the remainder of the requests that wait, all or those of ``names``, to queue in the engine; they run from now on."""
        wanted = self._lives if names is None else [name for name in names if name in self._lives]
        found = [life for life in (self._lives[name] for name in wanted) if life.waits]
        for life in found:
            life.waits = life.interrupted = False
        return [life.ask.after(life.tokens) for life in found]

    def _seen(self, life: _ActiveRequest, part: NewTokens) -> NewTokens:
        if part.withdrawn:
            del life.tokens[life.told :]
        life.tokens += part.tokens
        life.told += len(part.versions)
        if not part.finish:
            return part
        if part.finish == OTHER_STOP or (part.finish == "abort" and life.interrupted):
            finish = _over(life.ask, life.tokens)
            life.waits = not finish
            part = replace(part, finish=finish)
        if part.finish:
            del self._lives[part.name]
        return part


def _over(ask: EngineRequest, tokens: Sequence[int]) -> str:
    """Return why the answer is complete, although its engine was stopped just there: "stop", "length"; "" if it is not."""
    if tokens and tokens[-1] in ask.stop_token_ids:
        return "stop"
    return "length" if len(tokens) >= ask.max_tokens else ""
