"""The environment ``verifiers``: its own environments play its tasks. Only this module and those below it import the package verifiers."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import count
from typing import Any

import verifiers.v1 as vf

from rlcore.api import InfrastructureError
from rlcore.api.environments import Environment, EpisodeResult, Model
from rlcore_plugin_verifiers import inline_harness
from rlcore_plugin_verifiers.episode_result import result_of
from rlcore_plugin_verifiers.options import VerifiersOptions
from rlcore_plugin_verifiers.tasksets import importable, taskset_rows

__all__ = ["Verifiers"]

_INLINE = "rlcore_inline_harness"  # verifiers imports harnesses by the name of a module outside packages
_NUMBERS = count()


class Verifiers(Environment):
    """Plays tasks. The servers of an environment are started with its first task, and end with the process."""

    environment = "verifiers"
    episodes_per_process = 64

    def __init__(self, options: VerifiersOptions) -> None:
        self._options = options
        self._served: dict[str, asyncio.Task[vf.Env]] = {}
        self._open: set[asyncio.Task[None]] = set()
        sys.modules.setdefault(_INLINE, inline_harness)

    @classmethod
    def rows(cls, name: str) -> Iterable[Mapping[str, Any]]:
        """Return the tasks of a taskset as rows. ``name``: such as ``my-taskset?split=train``."""
        return taskset_rows(name)

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        """See Environment."""
        if "task" not in row or "taskset" not in row:
            raise InfrastructureError("the row is not a task of verifiers; make rows with -d env:verifiers:NAME")
        importable(str(row.get("taskset_folder", "")))
        env = await self._env(dict(row["taskset"]))
        task_class = type(env.taskset).task_type()
        task = task_class(task_class.data_type().model_validate(row["task"]), env.config.taskset.task)
        with ExitStack() as keys:
            context = vf.ModelContext(model=model.name, client=self._client(model, keys))
            try:
                episode = await self._for_episode(env, model, keys).run_episode(task, context)
            except SystemExit as error:  # verifiers records exceptions alone; harnesses with code of their own are processes
                raise InfrastructureError(f"the taskset called sys.exit({error.code!r})") from error
        return result_of(episode, model.players, self._options.client == "tokens")

    def _client(self, model: Model, keys: ExitStack, *, chat: bool = False) -> vf.ClientConfig:
        """Return how to reach a model. Its key is in a variable until ``keys`` is closed: verifiers reads keys from nowhere else."""
        options, variable = self._options, f"RLCORE_API_KEY_{next(_NUMBERS)}"  # children do not get variables with API_KEY in their names
        os.environ[variable] = model.api_key
        keys.callback(os.environ.pop, variable)
        asked: dict[str, Any] = {"base_url": model.base_url, "api_key_var": variable}
        if chat or options.client == "chat":
            return vf.EvalClientConfig(**asked)
        return vf.TrainClientConfig(**asked, renderer=options.renderer or None, renderer_model_name=str(options.tokenizer))

    async def _env(self, taskset: dict[str, Any]) -> vf.Env:
        """Return an environment of verifiers that is served. Episodes share it."""
        key = json.dumps(taskset, sort_keys=True)
        if key not in self._served:
            self._served[key] = asyncio.ensure_future(self._serve(taskset))
        try:
            return await asyncio.shield(self._served[key])
        except (Exception, SystemExit) as error:
            self._served.pop(key, None)
            raise InfrastructureError(
                f"taskset {taskset.get('id')}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
            ) from error

    async def _serve(self, taskset: dict[str, Any]) -> vf.Env:
        env = await asyncio.to_thread(self._loaded, taskset)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def hold() -> None:
            try:
                async with env.serving():
                    ready.set_result(None)
                    await asyncio.Event().wait()
            except (Exception, SystemExit) as error:
                if not ready.done():
                    ready.set_exception(error)

        self._open.add(asyncio.create_task(hold()))
        await ready
        return env

    def _loaded(self, taskset: dict[str, Any]) -> vf.Env:
        options = self._options
        config_class = vf.env_config_type(str(taskset["id"]), options.env)
        settings = {**options.env_options, "id": options.env, "taskset": taskset}
        own_harness = vf.default_harness_id(str(taskset["id"])) != "bash"
        for role, field in config_class.model_fields.items():
            if isinstance(field.default, vf.AgentConfig):
                agent = {"runtime": {"type": "subprocess"}, **options.agent, **settings.get(role, {}), **options.agents.get(role, {})}
                if not own_harness and field.default.harness is None:
                    agent.setdefault("harness", {"id": _INLINE})
                settings[role] = agent
        return vf.load_environment(config_class.model_validate(settings))

    def _for_episode(self, env: vf.Env, model: Model, keys: ExitStack) -> vf.Env:
        """Return a view of an environment for one episode, whose players play the roles of the same names.

        Its runs have interception servers of their own. A shared one keeps a client for each key until the process ends.
        """
        one = copy.copy(env)
        one._interception = None
        if not model.players:
            return one
        roles = {name: agent for name, agent in env.config if isinstance(agent, vf.AgentConfig)}
        if unknown := sorted(set(model.players) - set(roles)):
            raise InfrastructureError(f"player {unknown[0]!r} is not a role of the environment, which are {', '.join(roles)}")
        if self._options.client == "tokens":
            raise InfrastructureError("client tokens does not reach the players of a run; leave out client")
        update = {
            name: roles[name].model_copy(update={"model": player.name, "client": self._client(player, keys, chat=True)})
            for name, player in model.players.items()
        }
        one.config = env.config.model_copy(update=update)
        return one
