"""One run without namespaces: a single process under Landlock rules and the strict system call filter, or (level none) under neither.

With the walls it cannot start another process, so killing it ends the run. Its private folder is emptied after every run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from rlcore_plugin_sandbox.jail import landlock, program, program_folder, seccomp, watch

__all__ = ["run", "walls"]

_ANY_PID = 0x7A9F0001  # a placeholder in the filter, which each run replaces with its own; larger than any process id
_PIPE = 64 << 10  # bytes that a pipe holds; the filter keeps programs from asking for more
_TRIES = 100  # to count a folder that moves: each thread may finish one system call after the process is stopped
_THREADS = 1 << 20  # the filter refuses processes; this limit counts all of the user's, so a small one would affect other programs


def walls(settings: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return (Landlock rules, filter), which the zygote makes once."""
    ruleset = landlock.rules(readable=settings["readable"], listed=settings["listed"], files=settings["devices"], own=settings["home"])
    return ruleset, seccomp.bpf(landlock=True, pid=_ANY_PID)


def run(
    limits: dict[str, Any], descriptors: list[int], channel: socket.socket, home: str, walled: tuple[int, bytes] | None
) -> dict[str, Any]:
    """Fork, build the walls, run the program, watch it, and clean up. ``walled``: the result of ``walls``; None: no walls."""
    with watch.Run(limits, channel, walled=walled is not None) as this:
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be_program(zygote, this.is_ready, descriptors, limits, this.flag, home, walled)
        try:
            this.of(pid, _Looks(pid, home, limits, walled=walled is not None))
            this.wait()
        finally:
            if walled is None:
                _kill_group(pid)
            this.end()
            left = _clean_up(home, this.still_cleaning, walled=walled is not None)
            this.cleaned(too_much=left > int(limits["files"]))
    return this.answer()


def _be_program(
    zygote: int, is_ready: int, descriptors: list[int], limits: Mapping[str, Any], flag: Any, home: str, walled: tuple[int, bytes] | None
) -> NoReturn:
    try:
        stdin, payload, stdout, stderr = descriptors
        os.dup2(stderr, 2)
        content = program.read_all(payload)
        os.dup2(os.open(f"/proc/self/fd/{stdin}", os.O_RDONLY), 0)  # a new file description at offset 0, not shared with the owner
        os.dup2(stdout, 1)
        program.end_with_parent(zygote)
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


class _Looks:
    """Measures the use of the process at each call."""

    def __init__(self, pid: int, home: str, limits: Mapping[str, Any], *, walled: bool) -> None:
        self._pid, self._home, self._limits, self._walled = pid, home, limits, walled
        self._hidden: set[int] = set()

    def __call__(self) -> watch.Use:
        use = watch.one(self._pid)
        found: set[int] = set()
        files, size = self._stored(found)
        if files > self._limits["files"]:
            use.over = "disk"
            return use
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            process = watch.to_look_at(self._pid)
            try:
                held = program_folder.descriptors(process, self._home)
                size += sum(held.unlinked.values()) + self._unseen(process, found | held.unlinked.keys())
            except PermissionError:
                if self._walled and watch.lives(process):
                    size = self._limits["disk"] + 1  # it has made itself unreadable, so its files cannot be counted
            else:
                use.memory += held.sockets * watch.SOCKET + held.pipes * _PIPE
        if size > self._limits["disk"]:
            use.over = "disk"
        elif use.tasks > self._limits["processes"]:
            use.over = "memory"  # kernel memory of each thread, which no process limit counts
        return use

    def _stored(self, found: set[int]) -> tuple[int, int]:
        """Return (entries, bytes) of the folder. If the process moves subfolders during the count, stop it meanwhile."""
        most = int(self._limits["files"])
        with contextlib.suppress(FileNotFoundError):
            return program_folder.stored(self._home, most, found)
        try:
            for _ in range(_TRIES):
                os.kill(self._pid, signal.SIGSTOP)  # this does not wait for the stop, because the process can undo it at once
                with contextlib.suppress(FileNotFoundError):
                    return program_folder.stored(self._home, most, found)
        finally:
            os.kill(self._pid, signal.SIGCONT)
        return (most + 1, 0) if self._walled else (0, 0)  # level none: its other processes are not stopped

    def _unseen(self, process: str, seen: set[int]) -> int:
        """Return the bytes of files that are mapped and neither in the folder nor open. Their sizes are unknown, so each counts as more
        than the disk. Python's own maps keep their file open. Only files that are seen in two checks count, so that a moment between two
        calls does not."""
        hidden = program_folder.mapped(process, self._home) - seen
        before, self._hidden = self._hidden, hidden
        return len(hidden & before) * (int(self._limits["disk"]) + 1)


def _clean_up(home: str, tick: Callable[[], None], *, walled: bool) -> int:
    """Empty the folder before the next program; return its number of entries.

    :raises OSError: that fails; the zygote then ends, and its folder is not used any more.
    """
    with contextlib.nullcontext() if walled else contextlib.suppress(OSError):
        return program_folder.empty(home, tick)
    return 0


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
