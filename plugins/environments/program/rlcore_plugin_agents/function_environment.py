"""A function ``play(model, row)`` as an environment. This module also runs in the processes that play."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from rlcore.api import PluginError
from rlcore.api.environments import Environment, EnvironmentSpec, EpisodeResult, Model

__all__ = ["FunctionEnvironment", "environment_class"]


class FunctionEnvironment(Environment):
    """Calls a function for each episode. One that is not ``async`` runs in a thread of its own."""

    function: ClassVar[Callable[[Model, Mapping[str, Any]], Any]]

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult | float | None:
        """See Environment."""
        function = type(self).function
        if inspect.iscoroutinefunction(function):
            result: EpisodeResult | float | None = await function(model, row)
            return result
        result = await _in_thread(function, model, row)
        return await result if inspect.isawaitable(result) else result


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function in a thread of its own. One that hangs keeps no place from others, as it would in a pool."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def work() -> None:
        result, caught = None, None
        try:
            result = function(*arguments)
        except Exception as error:
            caught = error
        except SystemExit as error:
            caught = RuntimeError(f"it called sys.exit({error.code!r})")
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, caught)

    threading.Thread(target=work, daemon=True).start()
    return await future


def environment_class(function: Any) -> type | None:
    """Return a class that calls the function; None if it is not a function.

    Attributes set on the function (``play.episodes_per_process = 8``) replace those of the class.

    :raises PluginError: it cannot be called as ``play(model, row)``.
    """
    if isinstance(function, type | Environment) or not callable(function):
        return None
    name = getattr(function, "__name__", type(function).__name__)
    try:
        inspect.signature(function).bind("model", "row")
    except TypeError as error:
        raise PluginError(f"environment {name} is a function that cannot be called as play(model, row): {error}") from error
    declared = {field: getattr(function, field) for field in EnvironmentSpec.on_class if hasattr(function, field)}
    body = {"function": staticmethod(function), "__doc__": function.__doc__, "__module__": function.__module__, **declared}
    return type(name, (FunctionEnvironment,), body)
