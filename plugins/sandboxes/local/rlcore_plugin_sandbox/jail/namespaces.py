"""One run in fresh namespaces, from inside bubblewrap.

The program is process 1 of a new pid namespace. When it ends or is killed, the kernel kills all other processes in the namespace, so that
no process of a program remains, whatever it did.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any, NoReturn

from rlcore_plugin_sandbox.jail import program, seccomp
from rlcore_plugin_sandbox.jail.syscalls import number

__all__ = ["FILES_ONLY", "be_inside_user", "be_program", "bind", "fork", "map_user", "mount_private", "mount_terminals"]

_FRESH = 0x10000000 | 0x00020000 | 0x20000000 | 0x08000000 | 0x40000000 | 0x04000000  # CLONE_NEW{USER,NS,PID,IPC,NET,UTS}
FILES_ONLY = 0x10000000 | 0x00020000
"""Flags of ``fork`` for a new user and mount namespace; the other namespaces stay those of the parent."""
_SIGCHLD = 17
_SET_TID = 0x01000000 | 0x00200000  # CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID
_PR_GET_TID_ADDRESS = 40
_INSIDE = 1000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_library = ctypes.CDLL(None, use_errno=True)
_holding = ctypes.PyDLL(None, use_errno=True)  # keeps the GIL during a clone, as os.fork does


def fork(machine: str, flags: int = _FRESH) -> int:
    """Fork as os.fork does, into fresh namespaces. Return the process id in the parent and 0 in the child; raise OSError if the kernel
    refuses."""
    address = ctypes.c_void_p(0)
    _library.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0)  # the C library's thread id, which is new in the child
    tid = [None, None, address] if machine == "aarch64" else [None, address, None]
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_holding.syscall(number("clone", machine), ctypes.c_ulong(flags | _SET_TID | _SIGCHLD), None, *tid))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    reason = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(reason, f"no namespaces: {os.strerror(reason)}")
    return pid


def map_user(pid: int, uid: int, gid: int) -> None:
    """Map this user and group to user and group 1000 inside the namespace. The child waits for this."""
    for name, line in (("setgroups", "deny"), ("gid_map", f"{_INSIDE} {gid} 1"), ("uid_map", f"{_INSIDE} {uid} 1")):
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def be_program(go: int, is_ready: int, descriptors: list[int], limits: Mapping[str, Any], flag: Any) -> NoReturn:
    """Be process 1: wait for a byte from ``go`` (its user is mapped), build its mounts, give up all privileges, and run the program.

    :param descriptors: input, payload, output and error of the program; ``is_ready`` receives a byte when it starts.
    """
    try:
        stdin, payload, stdout, stderr = descriptors
        os.dup2(stderr, 2)
        if os.read(go, 1) != b"g":
            os._exit(1)
        be_inside_user()
        _mounts(program.read_all(stdin), limits)
        content = program.read_all(payload)
        os.dup2(os.open("/proc/self/fd/0", os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        program.keep_only(is_ready)
        program.confine(limits, processes=int(limits["processes"]))
        program.no_privileges()
        seccomp.install(limits["filter"])
        program.run_program(content, flag, "/tmp", is_ready)
    except BaseException as error:
        program.give_up(error)


def be_inside_user() -> None:
    """Become the user and the group that ``map_user`` has mapped."""
    os.setresgid(_INSIDE, _INSIDE, _INSIDE)
    os.setresuid(_INSIDE, _INSIDE, _INSIDE)


def mount_private(limits: Mapping[str, Any]) -> None:
    """Mount a private /tmp, whose size and number of files the kernel bounds."""
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={limits['disk']},nr_inodes={limits['files']},mode=0700")


def bind(source: str, target: str) -> None:
    """Show a folder at a second path."""
    _mount(source, target, None, _MS_BIND)


def mount_terminals(number: int) -> None:
    """Mount pseudo terminals of its own, at most this many at once. Each takes at most 128 KiB of the kernel's memory."""
    _mount("devpts", "/dev/pts", "devpts", _MS_NOSUID | _MS_NOEXEC, f"newinstance,ptmxmode=0666,mode=0620,max={number}")


def _mounts(stdin: bytes, limits: Mapping[str, Any]) -> None:
    """Mount a private /tmp. In place of /proc, which would show processes and mounts, mount a folder with the one file that programs open
    there."""
    mount_private(limits)
    _mount("tmpfs", "/proc", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, f"size={len(stdin) + (1 << 16)},nr_inodes=16,mode=0755")
    os.makedirs("/proc/self/fd", 0o755)  # noqa: PTH103
    descriptor = os.open("/proc/self/fd/0", os.O_WRONLY | os.O_CREAT, 0o444)
    view = memoryview(stdin)
    while view:
        view = view[os.write(descriptor, view) :]
    os.close(descriptor)
    _mount(None, "/proc", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    if _library.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        reason = ctypes.get_errno()
        raise OSError(reason, f"mount {target}: {os.strerror(reason)}")
