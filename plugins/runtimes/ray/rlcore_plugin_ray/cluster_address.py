"""Work before the import of Ray: choose the head that a run joins, find out whether it needs a token, and choose the folder of Ray's files.
This module does not import Ray, because Ray reads RAY_AUTH_MODE only once, at its import."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path

from rlcore.api import ConfigError
from rlcore.api.runtime import RunSection
from rlcore_plugin_ray.own_cluster import own_cluster
from rlcore_plugin_ray.ray_folder import check_ray_folder

__all__ = ["AUTH_MODE", "head_address", "ray_head", "signals_blocked", "usable_folder"]

AUTH_MODE = "RAY_AUTH_MODE"
_DEFAULT_PORT = 6379
_ANSWER_SECONDS = 20.0
_RAY = "from importlib.metadata import entry_points; (ray,) = entry_points(group='console_scripts', name='ray'); ray.load()()"
"""The program ``ray`` of this environment, which may not be on PATH."""


@contextmanager
def ray_head(settings: RunSection) -> Iterator[str | None]:
    """Yield the address for ``ray.init``; None if this process is connected already. A cluster that is started for the run ends with the
    context."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without this setting Ray hides the GPUs from actors that reserve none, and warns that it will stop doing so.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray ends a driver that cannot reach the head for 60 s; the run has its own deadline and error.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "86400")
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        yield None
    elif settings.master_address is not None:
        yield head_address(settings.master_address)
    elif ray is not None and AUTH_MODE not in os.environ:
        # Ray is imported, so this process could not adopt the token mode of a cluster in another process. Ray starts the
        # cluster from here.
        yield "local"
    else:
        folder = usable_folder(settings.ray_dir) if settings.ray_dir is not None else None
        with ExitStack() as closing:
            with signals_blocked():
                address, mode = closing.enter_context(own_cluster(folder))
            if mode is not None:
                os.environ[AUTH_MODE] = mode
            yield address


def head_address(typed: str) -> str:
    """Return HOST:PORT of a Ray head that answers. Raise ConfigError if the text is not such an address, or if no Ray head answers
    there."""
    if typed == "auto":
        return typed
    host, _, port = typed.rpartition(":") if re.fullmatch(r".*:\d+", typed) else (typed, "", str(_DEFAULT_PORT))
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]", host) or not 1 <= int(port) <= 65535:
        raise ConfigError(
            f"--master_address {typed} is not HOST:PORT with a port from 1 to 65535; type the address that ray start --head prints, or auto"
        )
    address = f"{host}:{port}"
    answer = _asked(address, {})
    wants_token = answer is _Answer.REFUSES
    if wants_token and AUTH_MODE not in os.environ:
        # `ray start` sends the token of ~/.ray by itself; a driver that names an address does not.
        answer = _asked(address, {AUTH_MODE: "token"})
        if answer is _Answer.YES and "ray" in sys.modules:
            raise ConfigError(
                f"the Ray cluster at {address} asks for a token, and this program has imported ray without one; set {AUTH_MODE}=token "
                "before it starts"
            )
        if answer is _Answer.YES:
            os.environ[AUTH_MODE] = "token"
    if answer is _Answer.YES:
        return address
    if wants_token:
        raise ConfigError(
            f"the Ray cluster at {address} asks for a token, and this machine has none or a different one; copy ~/.ray/auth_token from the "
            "head's machine, or set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        )
    raise ConfigError(
        f"--master_address {address} does not answer as the head of a Ray cluster, within {_ANSWER_SECONDS:g} s; type HOST:PORT as "
        "ray start --head prints it, or leave it out to start a new cluster"
    )


class _Answer(Enum):
    YES = 0
    NO = 1
    REFUSES = 2


def _asked(address: str, environment: Mapping[str, str]) -> _Answer:
    """Ask with ``ray status`` whether a head answers at the address. If no head does, that command waits a minute and then ends its
    process."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except OSError:  # nothing listens, so do not wait for Ray to find out
        return _Answer.NO
    command = [sys.executable, "-P", "-c", _RAY, "status", "--address", address]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, env={**os.environ, **environment}, check=False
        )
    except subprocess.TimeoutExpired:
        return _Answer.NO
    if done.returncode == 0 or "version mismatch" in done.stderr:  # ray.init gives more details about versions
        return _Answer.YES
    return _Answer.REFUSES if "AuthenticationError" in done.stderr else _Answer.NO


def usable_folder(typed: str) -> Path:
    """Return the folder for Ray's files, and create it if it does not exist. Raise ConfigError if that fails or its path is too long."""
    folder = Path(typed).resolve()
    check_ray_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--ray-dir {folder} cannot be used as a folder ({error.strerror}); type another one") from error
    return folder


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the body is done, then deliver the first of them to its handler.

    A partly started cluster could not be ended, and the import of C code can lose a KeyboardInterrupt. Afterwards SIGTERM has its former
    handler again and not Ray's, which ends the process without the clean-up that follows Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: held.append(number)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])
