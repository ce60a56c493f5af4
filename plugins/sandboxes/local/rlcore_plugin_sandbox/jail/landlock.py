"""Landlock (Linux 5.13 and later), which restricts the files of a process further than the rights of its user.

The rules are made once; each program applies them to itself just before it starts.
"""

from __future__ import annotations

import ctypes
import os
import struct

from rlcore_plugin_sandbox.jail.syscalls import number

__all__ = ["abi", "restrict", "rules"]

_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _MAKE_SYM = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 12
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_ALL_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP = 0b11
_SCOPED = 0b11  # abstract sockets, signals
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_OWN = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER | _TRUNCATE

_library = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Return the version of Landlock that the kernel offers, 0 if it offers none."""
    return max(0, int(_library.syscall(number("landlock_create_ruleset"), None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))))


def rules(*, readable: list[str], listed: list[str], files: list[str], own: str) -> int:
    """Return a descriptor of the rules. Programs may read and execute ``readable``, list the folders ``listed``, read and write ``files``
    (devices), and use ``own`` as their own folder.

    :raises OSError: the kernel refuses. Paths that do not exist are left out.
    """
    version = abi()
    handled = _ALL_FILES[min(version, 5)]
    attribute = struct.pack("=QQQ", handled, _TCP if version >= 4 else 0, _SCOPED if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _library.syscall(number("landlock_create_ruleset"), ctypes.c_char_p(attribute), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "no Landlock rules can be made")
    for path in readable:
        _allow(ruleset, path, _READ & handled)
    for path in listed:
        _allow(ruleset, path, _READ_DIR)
    for path in files:
        _allow(ruleset, path, (_READ_FILE | _WRITE_FILE) & handled)
    _allow(ruleset, own, _OWN & handled)
    return int(ruleset)


def restrict(ruleset: int) -> None:
    """Apply the rules to this process and its children for good. no_new_privs must be set; raise OSError if the kernel refuses."""
    if _library.syscall(number("landlock_restrict_self"), ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
        raise OSError(ctypes.get_errno(), "Landlock rules refused")


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - importing pathlib here costs too much
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        arguments = ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.c_char_p(rule), ctypes.c_uint32(0)
        if _library.syscall(number("landlock_add_rule"), *arguments) != 0:
            raise OSError(ctypes.get_errno(), f"no Landlock rule for {path}")
    finally:
        os.close(descriptor)
