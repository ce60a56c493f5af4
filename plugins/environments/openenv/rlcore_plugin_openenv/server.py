"""How a server of openenv is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlcore_gateway.environment_server import EnvironmentServer

from rlcore_plugin_openenv.options import OpenEnvOptions

__all__ = ["server_of"]


def server_of(options: OpenEnvOptions) -> EnvironmentServer | None:
    """Return the server that the options name, None if they name none."""
    if not (options.address or options.app or options.command):
        return None

    def command(port: int) -> Sequence[str]:
        if options.command:
            return [word.replace("{port}", str(port)) for word in options.command]
        python = sys.executable if options.python is None else str(options.python / "bin" / "python")
        return (python, "-m", "uvicorn", options.app, "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning")

    return EnvironmentServer(options.address, command, folder=options.folder, env=_variables(options), start_seconds=options.start_seconds)


def _variables(options: OpenEnvOptions) -> Mapping[str, str]:
    values = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME") or not options.python}
    path = [str(options.folder or Path.cwd()), values.get("PYTHONPATH", "")]
    values["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    if options.python is not None:
        values["PATH"] = os.pathsep.join([str(options.python / "bin"), values.get("PATH", os.defpath)])
    return {**values, **options.env}
