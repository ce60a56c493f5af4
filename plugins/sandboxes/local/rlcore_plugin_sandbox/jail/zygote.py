"""The warm process from which programs are forked: a loop of one request, one run, one answer. It never sees a program's output.

Requests and answers are single JSON messages on a seqpacket socket. The input, the program and the ends of the output pipes come as
descriptors, so that no data of one run stays in memory for the next. A closed socket ends the zygote.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import mmap
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from rlcore_plugin_sandbox.jail import namespaces, own_tmp, program, program_folder, seccomp, shown_packages, watch, without_namespaces
from rlcore_plugin_sandbox.jail.syscalls import machine

__all__ = ["main"]

_DESCRIPTORS = 4  # stdin, payload, stdout, stderr


def _words(text: str) -> list[str]:
    return text.split()


_WARM = _words("""
abc array ast bisect builtins cmath collections collections.abc contextlib copy dataclasses datetime decimal enum fractions functools
heapq io itertools json math operator re string struct sys textwrap time traceback types typing
""")
"""Modules that most programs import. Threading and random are left out: their work after every fork costs a fifth of a run."""


def main(control: int, setup: str) -> None:
    """Serve the socket ``control`` until it closes."""
    settings = json.loads(setup)
    for name in _WARM:
        with contextlib.suppress(ImportError):
            __import__(name)
    shown_packages.show(settings["packages"])
    imported = shown_packages.import_now(settings["warm"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The owner may ignore it; then a program could not be waited for, and its children would not be counted.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    channel = socket.socket(fileno=control)
    run = _runner(settings)
    program.like_python(settings.get("home", "/tmp"))
    gc.collect()
    gc.freeze()
    _say(channel, {"ready": True, "imported": imported, "mapped": _mapped()}, settings)
    while True:
        try:
            message, ancillary, _, _ = channel.recvmsg(1 << 17, socket.CMSG_SPACE(4 * _DESCRIPTORS))
        except ConnectionResetError:  # closed, with an unread answer in it
            message = b""
        if not message:
            _end(settings)
        if not ancillary:
            continue  # a command to stop a run that had just ended
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data)
        try:
            answer = run(json.loads(message), list(descriptors), channel)
        except OSError as error:
            answer = {"error": f"{error.strerror or error}"}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        _say(channel, answer, settings)


def _mapped() -> int:
    """Return the bytes of address space with which every program begins."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[0]) * mmap.PAGESIZE


def _say(channel: socket.socket, answer: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    try:
        channel.send(json.dumps(answer).encode())
    except OSError:
        _end(settings)


def _end(settings: Mapping[str, Any]) -> NoReturn:
    """Clean up after the owner has closed the socket or has died."""
    if "home" in settings:
        program_folder.remove(settings["home"])
    os._exit(0)


_Run = Callable[[dict[str, Any], list[int], socket.socket], dict[str, Any]]


def _runner(settings: Mapping[str, Any]) -> _Run:
    if settings["level"] == "namespaces":
        with contextlib.suppress(PermissionError):
            os.setgroups([])  # drop root's groups, which its new user would keep; other users may not drop groups
        rules = seccomp.bpf(landlock=False, pid=0)
        name = machine()
        return lambda limits, fds, channel: _in_namespaces(
            {**limits, "filter": rules}, fds, channel, (settings["uid"], settings["gid"]), name
        )
    walled = without_namespaces.walls(settings) if settings["level"] == "landlock" else None
    own_tmp.redirect(settings["home"], settings["readable"])
    return lambda limits, fds, channel: without_namespaces.run(limits, fds, channel, settings["home"], walled)


def _in_namespaces(limits: dict[str, Any], fds: list[int], channel: socket.socket, user: tuple[int, int], name: str) -> dict[str, Any]:
    with watch.Run(limits, channel, walled=True) as run:
        go_out, go = os.pipe()
        pid = namespaces.fork(name)
        if pid == 0:
            os.close(go)
            namespaces.be_program(go_out, run.is_ready, fds, limits, run.flag)
        os.close(go_out)
        try:
            run.of(pid, watch.everyone)
            namespaces.map_user(pid, *user)
            os.write(go, b"g")
            run.wait()
        finally:
            os.close(go)
            run.end()
    return run.answer()
