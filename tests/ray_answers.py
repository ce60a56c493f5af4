"""Remote calls without Ray: references whose answers a test gives, and actors that remember what was asked of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Actor", "Ref"]


class Ref:
    """What a remote call returns; ``give`` and ``fail`` answer it."""

    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self._future

    def give(self, value: Any = None) -> None:
        self._future.set_result(value)

    def fail(self, error: Exception) -> None:
        self._future.set_exception(error)


class _Method:
    def __init__(self, calls: list[Ref], then: Callable[[], Any] | None) -> None:
        self._calls = calls
        self._then = then

    def remote(self, *args: Any) -> Ref:
        ref = Ref()
        self._calls.append(ref)
        if self._then is not None:
            ref.give(self._then())
        return ref

    def options(self, **named: Any) -> _Method:
        return self


class Actor:
    """An actor handle: ``actor.calls["run"]`` are the references of its calls of ``run``. ``ready``: methods that answer at once."""

    def __init__(self, **ready: Callable[[], Any]) -> None:
        self.calls: dict[str, list[Ref]] = {}
        self._ready = ready

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(self.calls.setdefault(name, []), self._ready.get(name))
