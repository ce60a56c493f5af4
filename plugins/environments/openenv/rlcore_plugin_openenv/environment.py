"""The environment ``openenv``. It runs in the Python that has the package openenv."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from rlcore.api import DataError, InfrastructureError, UsageError
from rlcore.api.environments import Environment, EpisodeResult, Model
from rlcore_plugin_openenv.clients import Sessions
from rlcore_plugin_openenv.options import OpenEnvOptions
from rlcore_plugin_openenv.server import server_of
from rlcore_plugin_openenv.step_loop import StepLoop

__all__ = ["OpenEnv"]


class OpenEnv(Environment):
    """Plays with the environments of openenv, by one of four interfaces."""

    def __init__(self, options: OpenEnvOptions) -> None:
        self._options = options
        if options.folder is not None:
            sys.path.insert(0, str(options.folder))
        named = {name: _named(name, getattr(options, name)) for name in ("prompt", "action", "factory", "agent")}
        self._named = named
        self._server = server_of(options)
        self._sessions = Sessions(options, self._server)
        self._steps = StepLoop(options, named["prompt"], named["action"])

    @classmethod
    def rows(cls, name: str) -> Iterable[Mapping[str, Any]]:
        """See Environment. ``name`` is a number of seeds, which ``reset`` receives: 0, 1, …; ``SPLIT:NUMBER`` are the tasks of a split."""
        split, _, number = name.rpartition(":")
        if not number.isdigit() or int(number) < 1:
            raise DataError(
                f"openenv: {name!r} must be a number of seeds, such as env:openenv:1000, or of tasks, such as env:openenv:test:50"
            )
        for place in range(int(number)):
            reset = {"split": split, "index": place} if split else {"seed": place}
            yield {"messages": [{"role": "user", "content": "Begin."}], "reset": reset}

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        """See Environment."""
        messages: list[dict[str, Any]] = [dict(message) for message in row["messages"]] if self._options.messages == "row" else []
        if self._options.interface == "agent":
            from rlcore_plugin_openenv.captured_agent import play_captured

            return await play_captured(self._named["agent"], model, row, "" if self._server is None else await self._server.address())
        if self._options.interface == "session":
            return await self._with_resources(model, row)
        async with self._sessions.open(_reset_arguments(row)) as session:
            if self._options.interface == "steps":
                result = await self._steps.play(model, messages, session)
            else:
                from rlcore_plugin_openenv.tool_loop import ServerTools, play_with_tools

                result = await play_with_tools(self._options, model, messages, ServerTools(session))
        result.extra["waited_seconds"] = session.waited  # type: ignore[index]  # a dict
        return result

    async def _with_resources(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        from rlcore_plugin_openenv.tool_loop import ResourceTools, play_with_tools

        try:
            session = await asyncio.to_thread(self._created, row)
            messages = list(await asyncio.to_thread(session.initial_messages))
        except (Exception, SystemExit) as error:  # whatever the code of an environment raises
            raise InfrastructureError(f"the session cannot be made: {type(error).__name__}: {error}") from None
        try:
            return await play_with_tools(self._options, model, messages, ResourceTools(session))
        finally:
            with contextlib.suppress(Exception):  # it ends with this process at the latest
                await asyncio.to_thread(session.close)

    def _created(self, row: Mapping[str, Any]) -> Any:
        factory = self._named["factory"]
        factory = factory if hasattr(factory, "create") and not isinstance(factory, type) else factory()
        return factory.create(row.get("task", row), seed=_reset_arguments(row).get("seed"))


def _reset_arguments(row: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = row.get("reset") or {}
    if not isinstance(arguments, Mapping):
        raise InfrastructureError(f"column reset is {type(arguments).__name__}; it must be an object, the arguments of reset")
    return arguments


def _named(option: str, reference: str) -> Any:
    """Return what ``module:name`` names, None for other words."""
    if ":" not in reference:
        return None
    module, _, name = reference.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"openenv: {option} = {reference!r}: {error}; the option folder names the folder of your modules") from error
    return found
