"""The private folder of a program if no mount can provide one: measuring and emptying it, although the program may be hostile."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Descriptors", "descriptors", "empty", "mapped", "remove", "stored"]

_GONE = b" (deleted)"
_LONGEST_MAPS = 16 << 20  # bytes; the kernel lets a process have 65,530 maps
_BLOCK = 512  # bytes in a unit of st_blocks, on every file system


def stored(folder: str, most: int, found: set[int] | None = None) -> tuple[int, int]:
    """Return (number of entries, bytes) below a folder; stop counting soon after ``most`` entries. Add the inodes to ``found``.

    A folder that cannot be read (path too long, missing permission) counts as too many entries, because only a program that hides something
    creates it.

    :raises FileNotFoundError: a folder was removed after it was listed, or renamed with its content.
    """
    count = size = 0
    folders = [folder]
    while folders and count <= most:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    count += 1
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        size += status.st_blocks * _BLOCK
                        if found is not None:
                            found.add(status.st_ino)
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                    if count > most:
                        break
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError from error
        except OSError:
            return most + 1, size
    return count, size


@dataclass
class Descriptors:
    """The open descriptors of a process: unlinked files (inode: bytes), and the numbers of sockets and pipes."""

    unlinked: dict[int, int] = field(default_factory=dict)
    sockets: int = 0
    pipes: int = 0


def descriptors(process: str, folder: str) -> Descriptors:
    """Return the descriptors of a process, given its folder below /proc. Count only files of the file system of ``folder``.

    :raises PermissionError: the process has made itself unreadable.
    """
    device = os.stat(folder).st_dev  # noqa: PTH116 - importing pathlib here costs too much
    held = Descriptors()
    for name in os.listdir(f"{process}/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = os.stat(f"{process}/fd/{name}")  # noqa: PTH116
            if stat.S_ISSOCK(status.st_mode):
                held.sockets += 1
            elif stat.S_ISFIFO(status.st_mode):
                held.pipes += 1
            elif status.st_dev == device and status.st_nlink == 0:
                held.unlinked[status.st_ino] = status.st_blocks * _BLOCK
    return held


def mapped(process: str, folder: str) -> set[int]:
    """Return the inodes of deleted files of a folder that a process has mapped.

    :raises PermissionError: its list of maps is longer than any with names of usual length; reading it would take minutes.
    """
    with open(f"{process}/maps", "rb", buffering=0) as file:  # noqa: PTH123
        text = b""
        while len(text) <= _LONGEST_MAPS and (part := file.read(1 << 16)):
            text += part
    if len(text) > _LONGEST_MAPS:
        raise PermissionError
    inside, found = os.fsencode(folder) + b"/", set()
    if _GONE in text:
        for line in text.splitlines():
            fields = line.split(None, 5)
            if line.endswith(_GONE) and fields[-1].startswith(inside):
                found.add(int(fields[4]))
    return found


def empty(folder: str, tick: Callable[[], None] = lambda: None) -> int:
    """Remove the content of the folder, however deep, whatever its modes, and return the number of entries. Call ``tick`` before each
    entry. The program must have ended.

    Subfolders are moved to the top, one level at a time, so that no path gets long and nothing recurses.
    """
    prefix, lifted, removed = os.urandom(8).hex(), 0, 0
    while names := os.listdir(folder):  # noqa: PTH208
        for name in names:
            path = f"{folder}/{name}"
            tick()
            removed += 1
            if _removed(path):
                continue
            for inner in _within(path):
                tick()
                if _removed(f"{path}/{inner}"):
                    removed += 1
                else:  # it counts later, at the top
                    os.chmod(f"{path}/{inner}", 0o700)  # noqa: PTH101 - else it could not be moved
                    lifted += 1
                    os.rename(f"{path}/{inner}", f"{folder}/{prefix}-{lifted}")  # noqa: PTH104
            os.rmdir(path)  # noqa: PTH106
    return removed


def remove(folder: str) -> None:
    """Remove the folder itself too. Ignore errors if it is gone already or another process also removes it."""
    with contextlib.suppress(OSError):
        empty(folder)
        os.rmdir(folder)  # noqa: PTH106


def _within(path: str) -> list[str]:
    os.chmod(path, 0o700)  # noqa: PTH101 - a program may make a folder that its owner cannot list
    return os.listdir(path)  # noqa: PTH208


def _removed(path: str) -> bool:
    """Remove the entry unless it is a folder with content; return whether it was removed."""
    try:
        os.unlink(path)  # noqa: PTH108
    except IsADirectoryError:
        try:
            os.rmdir(path)  # noqa: PTH106
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
    return True
