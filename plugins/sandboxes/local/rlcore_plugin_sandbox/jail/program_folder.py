"""The private folder of a program that no mount can give one: how much lies in it, how it is emptied. The program is its enemy."""

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
    """(number of entries, bytes) below a folder; stops counting soon after ``most`` entries. ``found`` takes their inodes.

    What cannot be looked into (a path too long, no permission) counts as too many: only a program that hides something makes it.

    :raises FileNotFoundError: a folder was removed after it was listed, or renamed with all that is in it.
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
    """What a process holds open: files that no folder shows any more (inode: bytes), and how many sockets and pipes."""

    unlinked: dict[int, int] = field(default_factory=dict)
    sockets: int = 0
    pipes: int = 0


def descriptors(process: str, folder: str) -> Descriptors:
    """Those of a process, by its folder below /proc; of files, those of the file system of ``folder``.

    :raises PermissionError: it has made itself such that nobody may look.
    """
    device = os.stat(folder).st_dev  # noqa: PTH116 - pathlib is not worth its import in here
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
    """Inodes of files of a folder that a process has mapped under a name that is gone.

    :raises PermissionError: its list of maps is longer than any that names of usual length give: reading it would take minutes.
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
    """Remove everything in it, however deep, whatever its modes; call ``tick`` before each entry. Return how many there were. Its program
    must have ended.

    Subfolders are lifted to the top, a level at a time: no path gets long, nothing recurses.
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
                else:  # it counts when its turn comes at the top
                    os.chmod(f"{path}/{inner}", 0o700)  # noqa: PTH101 - else it could not be moved
                    lifted += 1
                    os.rename(f"{path}/{inner}", f"{folder}/{prefix}-{lifted}")  # noqa: PTH104
            os.rmdir(path)  # noqa: PTH106
    return removed


def remove(folder: str) -> None:
    """Remove the folder itself as well; no error if it is gone already or another process removes it, too."""
    with contextlib.suppress(OSError):
        empty(folder)
        os.rmdir(folder)  # noqa: PTH106


def _within(path: str) -> list[str]:
    os.chmod(path, 0o700)  # noqa: PTH101 - a folder may be made that not even its owner may list
    return os.listdir(path)  # noqa: PTH208


def _removed(path: str) -> bool:
    """Remove it, unless it is a folder with something in it."""
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
