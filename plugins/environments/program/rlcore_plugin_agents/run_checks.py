"""The checks of a run with an environment, before anything starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore_plugin_workers.environment_folders import named_folder
from rlcore_plugin_workers.python_check import compatible_python

from rlcore.api import ConfigError, PluginError, PluginKind
from rlcore.api.commands import Registry
from rlcore.api.environments import EnvironmentSpec
from rlcore_plugin_agents.player_options import player_problems, without_policy

__all__ = ["problems"]

_SHOWN = (Path("/usr"), Path("/bin"), Path("/sbin"), Path("/lib"))  # in each session


def problems(config: Any) -> list[str]:
    """Return one sentence for each problem."""
    agent = config.sampling.conversation.lower() == "agent"
    named = config.sampling.environment != "none"
    rewards = [entry.name for entry in config.rewards if entry.name.lower() == "environment"]
    if not agent:
        found = (
            ["reward environment: there is no environment that could give it; type --environment, or choose another reward"]
            if rewards
            else []
        )
        if named:
            found.append(
                f"sampling.environment = {config.sampling.environment} is never asked, because sampling.conversation is "
                f"{config.sampling.conversation}; leave one of the two out"
            )
        return found
    if not named:
        return ["sampling.conversation = agent needs an environment that plays; type --environment ./game.py:Game, or the name of one"]
    return [*_python(config), *_players(config), *_deadline(config), *_gateways(config), *_program(config), *_command(config)]


def _python(config: Any) -> Iterator[str]:
    """Yield why the environment's own virtual environment is not on this machine, where a run of this machine starts it."""
    registry = Registry.discover()
    try:
        spec = registry.spec(PluginKind.ENVIRONMENT, config.sampling.environment)
        elsewhere = getattr(registry.spec(PluginKind.RUNTIME, config.run.runtime), "reach", "") == "cluster"
    except PluginError:  # a class of the calling program, or a plugin that is not installed, which the plan reports
        return
    if elsewhere or not isinstance(spec, EnvironmentSpec) or not spec.environment:
        return
    try:
        folder = named_folder(spec.environment)
        if not (folder / "bin" / "python").exists():
            compatible_python(folder)
    except ConfigError as error:
        yield str(error)


def _players(config: Any) -> Iterator[str]:
    if not (players := config.sampling.options.get("players")):
        return
    trains = bool(config.data.sources)
    if found := list(player_problems(players, trains)):
        yield from found
        return
    if not trains and without_policy(players) and not _environment_alone(config.rewards):
        yield (
            "sampling.options.players: none is the policy, so no reward has sampled tokens to judge; evaluate with the reward of the "
            "environment alone, without options: -rt environment"
        )
    from rlcore_plugin_agents.player_engines import engine_problems

    yield from engine_problems(config)


def _environment_alone(rewards: Sequence[Any]) -> bool:
    from rlcore_plugin_agents.agent_options import EnvironmentRewardOptions

    names = [entry.name.lower() for entry in rewards]
    return names == ["environment"] and EnvironmentRewardOptions.model_validate(rewards[0].options) == EnvironmentRewardOptions()


def _deadline(config: Any) -> Iterator[str]:
    deadline, lease = config.sampling.options["deadline"], config.schedule.lease_deadline
    if deadline >= lease:
        yield (
            f"sampling.options.deadline = {deadline:g}: an episode must end before its prompts are given to another producer, after "
            f"schedule.lease_deadline = {lease:g}; lower it, or raise --lease-deadline"
        )


def _gateways(config: Any) -> Iterator[str]:
    gateways, workers = config.sampling.options["gateways"], config.sampling.options["workers"]
    if gateways > workers:
        yield f"sampling.options.gateways = {gateways}: each needs a worker, and there are workers = {workers}; lower it, or raise workers"


def _program(config: Any) -> Iterator[str]:
    if config.sampling.environment.lower() != "program":
        return
    options = config.sampling.environment_options
    command, cwd, python = options.get("command"), options.get("cwd"), options.get("python")
    if cwd and not Path(cwd).is_dir():
        yield f"sampling.environment_options.cwd: there is no folder {cwd}"
    if python and not (Path(python) / "bin" / "python").exists():
        yield f"sampling.environment_options.python: {python} has no bin/python; make one: python -m venv {python}"
    if not command:
        return
    name = command.split()[0] if isinstance(command, str) else command[0]
    folders = os.pathsep.join([*([str(Path(python) / "bin")] if python else []), os.environ.get("PATH", os.defpath)])
    place = str(Path(cwd or ".") / name) if os.sep in name else name
    if shutil.which(place, path=folders) is None:
        yield f"sampling.environment_options.command: there is no program {name!r}; type its path, or make it executable"


def _command(config: Any) -> Iterator[str]:
    if config.sampling.environment.lower() != "command":
        return
    from rlcore_plugin_agents.command_options import CommandOptions

    where, options = "sampling.environment_options", CommandOptions.model_validate(config.sampling.environment_options)
    if not options.grader and any(entry.name.lower() == "environment" for entry in config.rewards):
        yield f"reward environment: environment command gives no reward without a grader; set {where}.grader, or choose another reward"
    if options.folder is not None and not options.folder.is_dir():
        yield f"{where}.folder: there is no folder {options.folder}"
    folders = os.pathsep.join([*map(str, options.path), os.environ.get("PATH", os.defpath)])
    found = {}
    for name, words in (("command", options.agent.command), ("grader", options.grader)):
        if words and "{" not in words[0]:
            found[words[0]] = shutil.which(words[0], path=folders)
            if found[words[0]] is None:
                yield f"{where}.{name}: there is no program {words[0]!r}; add its folder to {where}.path, or type its path"
    if config.sampling.options.get("sandbox") is not None:
        yield from _command_in_a_sandbox(config, options, found)


def _command_in_a_sandbox(config: Any, options: Any, found: Mapping[str, str | None]) -> Iterator[str]:
    """Yield what the processes could not read, and what the episodes of one process could read of each other."""
    sandbox = config.sampling.options["sandbox"]
    shown = [*_SHOWN, *(Path(folder).resolve() for folder in sandbox["readable"])]
    words = (word for word in (*options.agent.command[1:], *options.grader[1:]) if Path(word).is_absolute() and Path(word).exists())
    paths = [*filter(None, found.values()), *words, *options.path, *filter(None, [options.folder])]
    for path in dict.fromkeys(Path(path).resolve() for path in paths):
        if not any(path.is_relative_to(folder) for folder in shown):
            yield (
                f"sampling.options.sandbox: the agent could not read {path}; add the folder {path if path.is_dir() else path.parent}, or "
                "that of its whole installation, to sampling.options.sandbox.readable"
            )
    if config.sampling.options["episodes_per_process"] > 1:
        yield (
            "sampling.options.episodes_per_process: agents in one session could read each other's files; leave it out, and raise workers"
        )
