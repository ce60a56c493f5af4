"""The data source ``env``: rows that an environment itself has, such as its levels or tasks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO

from rlcore.api import DataError, PluginError, PluginKind
from rlcore.api.commands import Registry
from rlcore.api.data import RowSource
from rlcore.api.environments import ChosenEnvironment, EnvironmentSpec
from rlcore_plugin_agents.worker_commands import worker_command

__all__ = ["EnvironmentRows"]

_TAIL = 1 << 14


class EnvironmentRows(RowSource):
    """Asks the class of an environment for its rows, in the Python of the environment."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource. ``path`` is ``env:ENVIRONMENT:NAME``; the environment may be ``FILE.py:CLASS``."""
        _, environment, name = (*path.split(":", 2), "", "")[:3]
        if environment.endswith(".py"):
            attribute, _, name = name.partition(":")
            environment = f"{environment}:{attribute}"
        if not environment:
            raise DataError(
                f"{path}: the rows of an environment are named env:ENVIRONMENT:NAME, such as env:textarena:TicTacToe-v0 or "
                "env:./game.py:Game:NAME"
            )
        with ExitStack() as closing:
            command = worker_command(_chosen(environment, path), 1, closing, rows=name)
            errors = closing.enter_context(_unnamed_file())
            process = closing.enter_context(
                subprocess.Popen(
                    command.argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=command.variables(""),
                )
            )
            closing.callback(process.kill)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(command.first_line)
            process.stdin.close()
            yield from enumerate(map(json.loads, process.stdout), start=1)
            if process.wait():
                raise DataError(f"{path}: {_last_line(errors) or f'its process ended with exit code {process.returncode}'}")


def _chosen(name: str, path: str) -> ChosenEnvironment:
    """Return the environment without options, which its rows do not depend on."""
    registry, kind = Registry.discover(), PluginKind.ENVIRONMENT
    if ":" not in name and not registry.has(kind, name):
        raise DataError(f"{path}: no installed plugin has an environment {name!r}; it has {', '.join(registry.names(kind))}")
    try:
        spec, payload = registry.spec(kind, name), registry.payload(kind, name)
    except PluginError as error:
        raise DataError(f"{path}: {error}") from error
    assert isinstance(spec, EnvironmentSpec)
    return ChosenEnvironment(name=spec.name, owner=registry.owner(kind, name), spec=spec, payload=payload, options=None)


def _unnamed_file() -> IO[bytes]:
    return os.fdopen(os.memfd_create("errors"), "w+b")


def _last_line(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
    return file.read().decode(errors="replace").strip().rpartition("\n")[2]
