"""The command line of bubblewrap: the parts of this machine that a jail shows, and the user under which it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlcore_plugin_sandbox import interpreter

__all__ = ["JAIL", "PACKAGES", "JailUser", "command", "jail_users", "show", "version"]

JAIL = "/jail"
"""The folder inside the jail with the jail's own code."""
PACKAGES = "/packages"
"""The folder inside the jail for packages outside the standard library, wherever they are on this machine."""
_PYTHON = "/python"
_NOBODY = 65534
_DEVICES = ("null", "full", "random", "urandom")  # not zero: mapped shared, it is memory that is charged to no process
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}


@dataclass(frozen=True, slots=True)
class JailUser:
    """A way to enter the jail: ``arguments`` for bubblewrap, and the user and group of this machine under which programs run."""

    arguments: tuple[str, ...]
    uid: int
    gid: int


def jail_users() -> list[JailUser]:
    """Return the ways to try, best first. Root must change to another user, because the kernel limits the number of processes for every
    user except root."""
    own = JailUser(("--unshare-user",), os.getuid(), os.getgid())
    if os.getuid() != 0:
        return [own]
    nobody = JailUser(("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"), _NOBODY, _NOBODY)
    contained = Path("/proc/self/uid_map").read_text(encoding="ascii").split() != ["0", "0", "4294967295"]
    return [nobody, own] if contained else [nobody]


def version() -> str | None:
    """Return the version of the bubblewrap on the path, None if it is missing or does not answer."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    try:
        return subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def command(
    user: JailUser,
    readable: Sequence[str],
    packages: Sequence[str],
    python_arguments: Sequence[str],
    further: Sequence[str] = (),
    *,
    terminals: bool = False,
) -> list[str]:
    """Return the whole command: an interpreter inside the jail, with the jail's code under ``JAIL``. Folders of packages are next to each
    other under ``PACKAGES``, so that each package finds its libraries.

    :param further: arguments of bubblewrap that show more.
    :param terminals: make a place for pseudo terminals.
    """
    words = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", *user.arguments]
    words += ["--hostname", "jail"]
    variables = interpreter.environment("/tmp") | ({} if _in_usr() else {"LD_LIBRARY_PATH": f"{_PYTHON}/lib"})
    for name, value in variables.items():
        words += ["--setenv", name, value]
    words += _system()
    executable, shown = _interpreter()
    words += shown
    words += show((folder, folder) for folder in readable)
    words += further
    words += ["--perms", "0755", "--dir", PACKAGES]
    words += [word for folder in packages for word in ("--ro-bind", folder, f"{PACKAGES}/{Path(folder).name}")]
    words += ["--ro-bind", str(Path(__file__).parent / "jail"), f"{JAIL}/jail"]
    words += ["--proc", "/proc", "--dir", "/tmp", "--tmpfs", "/dev", "--dir", "/dev/shm", *_devices(terminals=terminals)]
    # Empty folders that cover parts of this machine would otherwise be writable, and shared by all programs.
    words += [word for folder in _covers(words) for word in ("--remount-ro", folder)]
    return [*words, "--remount-ro", "/", "--chdir", "/", executable, *python_arguments]


def _covers(words: Sequence[str]) -> list[str]:
    """Return the empty folders, except those that are covered in turn by a folder that is shown later."""
    found: list[str] = []
    for option, first, second in zip(words, words[1:], [*words[2:], ""], strict=False):
        if option == "--tmpfs":
            found.append(first)
        elif option == "--ro-bind":
            found = [folder for folder in found if not Path(folder).is_relative_to(second)]
    return found


def show(paths: Iterable[tuple[str, str]]) -> list[str]:
    """Return the arguments that show folders and files of this machine, read-only: pairs of a path here and one in the jail.

    Each parent is named once, because bubblewrap takes at most 9000 words, and the modules of a path may be hundreds.
    """
    words: list[str] = []
    made: set[Path] = set()
    for source, at in paths:
        for parent in reversed(Path(at).parents):
            if parent not in made:
                made.add(parent)
                words += ["--perms", "0755", "--dir", str(parent)]  # without the mode, only the creator of the parents could pass through
        words += ["--ro-bind", source, at]
    return words


def _in_usr() -> bool:
    return interpreter.base().is_relative_to("/usr")


def _system() -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    if Path("/usr/local").is_dir() and not interpreter.base().is_relative_to("/usr/local"):
        words += ["--tmpfs", "/usr/local"]
    for name in ("bin", "sbin", "lib", "lib64", "lib32"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    words += ["--perms", "0755", "--dir", "/etc"]
    return words + [word for path in ("/etc/ld.so.cache", "/etc/alternatives") for word in ("--ro-bind-try", path, path)]


def _interpreter() -> tuple[str, list[str]]:
    """Return the interpreter's path inside the jail, and the arguments that show it there. Its installed packages stay outside."""
    base = interpreter.base()
    inside = base if _in_usr() else Path(_PYTHON)
    executable = interpreter.executable()
    words = []
    if not _in_usr():
        for folder in (inside, inside / "bin"):
            words += ["--perms", "0755", "--dir", str(folder)]  # else it would get the mode of the folder that is shown
        words += ["--ro-bind", str(executable), f"{inside}/bin/{executable.name}", "--ro-bind", str(base / "lib"), f"{inside}/lib"]
        executable = inside / "bin" / executable.name
    for folder in interpreter.site_packages():
        words += ["--tmpfs", str(inside / folder.relative_to(base))]
    return str(executable), words


def _devices(*, terminals: bool) -> list[str]:
    words = [word for name in _DEVICES for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    if terminals:
        words += ["--perms", "0755", "--dir", "/dev/pts", "--symlink", "pts/ptmx", "/dev/ptmx"]
    return words + [word for name, target in _LINKS.items() for word in ("--symlink", target, f"/dev/{name}")]
