"""What the processes of an environment may read when they play in a sandbox.

An environment in Python: its Python environment; and of the other folders of its path, such as those of editable installs, the packages
(folders with an ``__init__.py``) and modules, and no other file. A program: its Python environment or its folder, the files that its
command names, and its ``cwd``. What is in /tmp cannot be shown.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import all_suffixes
from pathlib import Path

from rlcore_gateway.worker_process import WorkerCommand

from rlcore.api import RunError
from rlcore.api.sandbox import Limits, SessionJob
from rlcore_plugin_agents.agent_options import SessionOptions

__all__ = ["other_python_session", "program_session", "python_session"]

_DAY = 86400.0  # the longest session; an episode that it ends is played again
_INSTALLED = ("site-packages", "dist-packages")
_SHOWN = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")  # in each session


def python_session(command: WorkerCommand, options: SessionOptions) -> SessionJob:
    """Return the session of a process in this Python."""
    prefix = Path(sys.prefix)
    modules = (module for module in _modules(sys.path, prefix) if not module.is_relative_to("/tmp"))
    return _session(command.argv, command.env, [prefix, *modules], options)


def other_python_session(command: WorkerCommand, options: SessionOptions) -> SessionJob:
    """Return the session of a process in another Python, whose path names the modules of rlcore by links in /tmp."""
    modules = [module.resolve() for module in _modules(command.env["PYTHONPATH"].split(os.pathsep))]
    modules = [module for module in modules if not module.is_relative_to("/tmp")]
    env = {**command.env, "PYTHONPATH": os.pathsep.join(dict.fromkeys(str(module.parent) for module in modules))}
    return _session(command.argv, env, [Path(command.argv[0]).parents[1], *modules], options)


def program_session(command: WorkerCommand, python: Path | None, options: SessionOptions) -> SessionJob:
    """Return the session of a program. It begins in ``cwd``, or else in its own empty folder. Raises RunError if there is no program."""
    cwd = Path(command.cwd or ".").absolute()
    found = shutil.which(command.argv[0], path=command.env.get("PATH"))
    if found is None:
        raise RunError(f"there is no program {command.argv[0]!r} here; type its path")
    program = Path(found).absolute()
    home = program.parents[1] if (program.parents[1] / "pyvenv.cfg").exists() else program.parent
    files = [_file(cwd, word) for word in command.argv[1:]]
    shown = [*([] if str(home) in _SHOWN else [home]), *filter(None, files)]
    if python is not None:
        shown.append(python.expanduser().absolute())
    if command.cwd:
        shown.append(cwd)
    words = [word if file is None else str(file) for word, file in zip(command.argv[1:], files, strict=True)]
    begin = ("/usr/bin/env", "-C", str(cwd)) if command.cwd else ()
    return _session((*begin, str(program), *words), command.env, shown, options)


def _file(cwd: Path, word: str) -> Path | None:
    """Return the file that a word of a command names, None if it names none."""
    try:
        return cwd / word if word and (cwd / word).is_file() else None
    except OSError:  # such as: the word is too long for a name
        return None


def _modules(path: Iterable[str], shown: Path | None = None) -> Iterator[Path]:
    """Yield the packages and modules in the folders of a path, without the standard library and what is below ``shown``."""
    for folder in (Path(entry).absolute() for entry in path if Path(entry).is_dir()):
        if shown is not None and folder.is_relative_to(shown):
            continue
        if folder.name in _INSTALLED:
            yield folder
        elif not folder.is_relative_to(sys.base_prefix):
            yield from sorted(child for child in folder.iterdir() if _is_module(child))


def _is_module(path: Path) -> bool:
    return (path / "__init__.py").is_file() or (path.name.endswith(tuple(all_suffixes())) and path.is_file())


def _session(argv: tuple[str, ...], env: Mapping[str, str], shown: Iterable[Path], options: SessionOptions) -> SessionJob:
    return SessionJob(
        argv=argv,
        env={name: value for name, value in env.items() if value},
        readable=tuple(dict.fromkeys(shown)),
        limits=Limits(
            cpu_seconds=_DAY,
            wall_seconds=_DAY,
            memory_bytes=options.memory_mb << 20,
            disk_bytes=options.disk_mb << 20,
            files=1 << 14,
            processes=options.processes,
            address_bytes=1 << 40,  # Node and Java reserve much more than they use
        ),
    )
