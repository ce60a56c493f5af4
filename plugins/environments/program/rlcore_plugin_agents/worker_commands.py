"""How the processes of an environment are started."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from rlcore_gateway.host import setup_line
from rlcore_gateway.worker_process import WorkerCommand
from rlcore_plugin_workers.environment_folders import named_folder
from rlcore_plugin_workers.environments import Interpreters

from rlcore.api import PluginError
from rlcore.api.environments import ChosenEnvironment, ProgramCommand, ProgramEnvironment, environment_target
from rlcore.api.runtime import thread_variables
from rlcore_plugin_agents.agent_options import SessionOptions
from rlcore_plugin_agents.worker_sessions import other_python_session, program_session, python_session

__all__ = ["worker_command"]

_HOST = "rlcore_gateway.host"
_BOOT = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {_HOST} import main; sys.exit(main())"


def worker_command(
    chosen: ChosenEnvironment, episodes: int, closing: ExitStack, sandbox: SessionOptions | None = None, *, rows: str | None = None
) -> WorkerCommand:
    """Return the command of a run's environment.

    :param episodes: how many episodes one process plays at the same time; 0: as the environment declares.
    :param closing: removes what the processes of another Python need.
    :param sandbox: the options of the sandbox in which they play. None: without one.
    :param rows: the name of rows that the process writes, in place of playing.
    """
    declared = chosen.spec.episodes_per_process
    if declared < 1:
        raise PluginError(f"environment {chosen.name}: episodes_per_process is {declared}; it must be at least 1")
    episodes = episodes or declared
    if chosen.spec.environment:
        interpreters = Interpreters()
        closing.callback(interpreters.close)
        # A class that travels as code needs this version of Python; one that is imported there does not.
        python, variables = interpreters.of(named_folder(chosen.spec.environment), same=chosen.payload is not None)
        env = {**thread_variables(1), **variables}
        command = WorkerCommand(
            argv=(python, "-P", "-m", _HOST),
            env=env,
            first_line=setup_line(chosen, rows),
            episodes=episodes,
            title=f"environment {chosen.name}",
        )
        return command if sandbox is None else replace(command, session=other_python_session(command, sandbox))
    target = environment_target(chosen)
    if isinstance(target, type) and issubclass(target, ProgramEnvironment) and rows is None:
        made: ProgramEnvironment = _made(target, chosen.options)
        given = made.command()
        command = _program(given, episodes)
        return command if sandbox is None else replace(command, session=program_session(command, given.python, sandbox))
    argv = (sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path))
    command = WorkerCommand(
        argv=argv, env=thread_variables(1), first_line=setup_line(chosen, rows), episodes=episodes, title=f"environment {chosen.name}"
    )
    return command if sandbox is None else replace(command, session=python_session(command, sandbox))


def _made(target: Any, options: Any) -> Any:
    return target() if options is None else target(options)


def _program(command: ProgramCommand, episodes: int) -> WorkerCommand:
    env = dict(command.env)
    if command.python is not None:
        folder = command.python.expanduser().absolute()
        path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
        env = {"PATH": path, "VIRTUAL_ENV": str(folder), "PYTHONPATH": "", "PYTHONHOME": "", **env}
    first, *others = command.argv
    if command.python is not None and (command.python / "bin" / first).exists():
        first = str(command.python.expanduser().absolute() / "bin" / first)
    cwd = None if command.cwd is None else str(command.cwd.expanduser())
    return WorkerCommand(argv=(first, *others), env=env, cwd=cwd, episodes=episodes)
