"""Before Ray is there: is the address that of a head, can its folder be used, and who gets the signals meanwhile."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import ray._private.services
import ray._raylet

from rlcore.api import ConfigError
from rlcore_plugin_ray.ray_folder import check_ray_folder

__all__ = ["apart", "head_address", "signals_held", "usable_folder"]

_DEFAULT_PORT = 6379
_MODE = "RAY_AUTH_MODE"
_ANSWER_SECONDS = 20.0
_ASK = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"


def head_address(typed: str) -> str:
    """HOST:PORT of a head that answers. ConfigError where it is no such address, or nobody, or somebody else, answers there."""
    if typed == "auto":
        return typed
    host, _, port = typed.rpartition(":") if re.fullmatch(r".*:\d+", typed) else (typed, "", str(_DEFAULT_PORT))
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]", host) or not 1 <= int(port) <= 65535:
        raise ConfigError(f"--master_address {typed} is no HOST:PORT with a port of 1 to 65535; type what ray start --head says, or auto")
    address = f"{host}:{port}"
    answer = _asked(address, {})
    wants_token = answer is _Answer.REFUSES
    if wants_token and _MODE not in os.environ:
        # As `ray start` does where a token is at home; a driver that names an address is left out of that.
        answer = _asked(address, {_MODE: "token"})
        if answer is _Answer.YES:
            os.environ[_MODE] = "token"
            raylet: Any = ray._raylet
            raylet.Config.initialize("")  # Ray has read its environment before
    if answer is _Answer.YES:
        return address
    if wants_token:
        raise ConfigError(
            f"the Ray cluster at {address} asks for a token, and this machine has none, or another; copy ~/.ray/auth_token from the head's "
            "machine, or set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        )
    raise ConfigError(
        f"--master_address {address} does not answer as the head of a Ray cluster, within {_ANSWER_SECONDS:g} s; type HOST:PORT as "
        "ray start --head says, or leave it out for a cluster of its own"
    )


class _Answer(Enum):
    YES = 0
    NO = 1
    REFUSES = 2


def _asked(address: str, environment: Mapping[str, str]) -> _Answer:
    """Whether a head answers there. In a process of its own: where none does, Ray waits a minute and then ends the process."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except OSError:  # nobody listens: no need to wait for Ray to find out
        return _Answer.NO
    command = [sys.executable, "-c", _ASK, address]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, env={**os.environ, **environment}, check=False
        )
    except subprocess.TimeoutExpired:
        return _Answer.NO
    if done.returncode == 0:
        return _Answer.YES
    return _Answer.REFUSES if "AuthenticationError" in done.stderr else _Answer.NO


def usable_folder(typed: str) -> Path:
    """The folder for Ray's files, made where it is not there. ConfigError where it cannot be, or is too deep."""
    folder = Path(typed).resolve()
    check_ray_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--ray-dir {folder} cannot be used as a folder ({error.strerror}); type another one") from error
    return folder


@contextmanager
def signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the body is done, then KeyboardInterrupt: half of a cluster could not be ended. Ray's own handler of
    SIGTERM, which ends the process without the clean-up that Ctrl-C gets, is put away."""
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
        raise KeyboardInterrupt


@contextmanager
def apart() -> Iterator[None]:
    """Ray's processes that start inside get process groups of their own: what a terminal, `timeout` or a supervisor sends to the group of
    the driver is for the driver, who ends them."""
    services: Any = ray._private.services
    before = services.ConsolePopen

    class Apart(before):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, process_group=0, **named)

    services.ConsolePopen = Apart
    try:
        yield
    finally:
        services.ConsolePopen = before
