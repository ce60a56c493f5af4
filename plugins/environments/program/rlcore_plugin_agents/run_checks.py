"""The checks of a run with an environment, before anything starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["problems"]


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
    return [*_deadline(config), *_program(config)]


def _deadline(config: Any) -> Iterator[str]:
    deadline, lease = config.sampling.options["deadline"], config.schedule.lease_deadline
    if deadline >= lease:
        yield (
            f"sampling.options.deadline = {deadline:g}: an episode must end before its prompts are given to another producer, after "
            f"schedule.lease_deadline = {lease:g}; lower it, or raise --lease-deadline"
        )


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
