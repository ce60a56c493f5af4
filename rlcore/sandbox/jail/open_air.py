"""One run without namespaces: a single process under Landlock rules and the strict system call filter, or (level none) under neither.

With the walls up it cannot start another process, so killing it ends all of it; a folder of its own is emptied after every run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

from rlcore.sandbox.jail import landlock, program, seccomp, watch

__all__ = ["run", "walls"]

_ANY_PID = 0x7A9F0001  # stands in the filter where each run puts its own; beyond any process id
_THREADS = 1 << 20  # processes are refused by the filter; the count is per user here, so that a small one would hit other people's


def walls(settings: Mapping[str, Any]) -> tuple[int, bytes]:
    """(Landlock rules, filter): made once, by the zygote."""
    ruleset = landlock.rules(readable=settings["readable"], listed=settings["listed"], files=settings["devices"], own=settings["home"])
    return ruleset, seccomp.bpf(landlock=True, pid=_ANY_PID)


def run(
    limits: dict[str, Any], descriptors: list[int], channel: socket.socket, home: str, walled: tuple[int, bytes] | None
) -> dict[str, Any]:
    """Fork, wall in, run, watch, clean up. ``walled``: what ``walls`` made; None: no walls."""
    with watch.Run(limits, channel) as this:
        pid = os.fork()
        if pid == 0:
            _be_program(this.is_ready, descriptors, limits, this.flag, home, walled)
        try:
            this.of(pid, lambda: _use(pid, home, limits))
            this.wait()
        finally:
            if walled is None:
                _kill_group(pid)
            this.end()
            _empty(home)
    return this.answer()


def _be_program(
    is_ready: int, descriptors: list[int], limits: Mapping[str, Any], flag: Any, home: str, walled: tuple[int, bytes] | None
) -> NoReturn:
    try:
        stdin, payload, stdout, stderr = descriptors
        os.dup2(stderr, 2)
        content = program.read_all(payload)
        os.lseek(stdin, 0, os.SEEK_SET)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        program.end_with_parent()
        program.keep_only(is_ready, *([walled[0]] if walled else []))
        program.confine(limits, processes=_THREADS)
        if walled:
            ruleset, rules = walled
            program.no_privileges()
            landlock.restrict(ruleset)
            os.close(ruleset)
            seccomp.install(rules.replace(_word(_ANY_PID), _word(os.getpid())))
        else:
            os.setpgid(0, 0)
        program.run_program(content, flag, home, is_ready)
    except BaseException as error:
        program.give_up(error)


def _word(number: int) -> bytes:
    return struct.pack("=I", number)


def _use(pid: int, home: str, limits: Mapping[str, Any]) -> watch.Use:
    use = watch.one(pid)
    files, size = _stored(home, limits["files"])
    if files > limits["files"] or size > limits["disk"]:
        use.over = "disk"
    return use


def _stored(folder: str, most: int) -> tuple[int, int]:
    """(number of entries, bytes) below a folder; stops counting soon after ``most`` entries."""
    count = size = 0
    folders = [folder]
    while folders and count <= most:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    size += status.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                if count > most:
                    break
    return count, size


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _empty(home: str) -> None:
    """Remove what the program left; a tree too deep for a walk is the command's business."""
    for name in os.listdir(home):  # noqa: PTH208
        path = f"{home}/{name}"
        try:
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
                shutil.rmtree(path)
            else:
                os.unlink(path)  # noqa: PTH108
        except (OSError, RecursionError):
            os.system(f"rm -rf '{home}/'* '{home}/'.[!.]* 2>/dev/null")
            return
