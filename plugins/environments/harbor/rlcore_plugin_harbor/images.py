"""Which tasks need no image: their Dockerfile, if they have one, only copies files into a plain system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harbor.models.task.config import EnvironmentConfig

__all__ = ["FOLDERS", "Setup", "image_need", "outside_link", "setup_of"]

FOLDERS = ("/app", "/workspace", "/data", "/testbed", "/logs", "/tests", "/solution", "/installed-agent", "/runtime")
"""The writable folders at the top of a session: those in which tasks like to work, and those of Harbor. /tmp is one too."""
_WORKDIR = "/app"
_PLAIN = ("scratch", "debian", "ubuntu", "busybox", "bash", "buildpack-deps")
"""Systems whose programs a session has too: the shell and Debian's own."""
_WITHOUT_EFFECT = ("LABEL", "MAINTAINER", "CMD", "ENTRYPOINT", "EXPOSE", "STOPSIGNAL", "SHELL")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a session begins with: its working folder, variables, and copies (file or folder of the task, path in the session)."""

    workdir: str
    env: dict[str, str]
    copies: tuple[tuple[Path, str], ...]


def image_need(folder: Path, config: EnvironmentConfig) -> str:
    """Return why a task needs an image, "" if it does not. ``folder``: its ``environment``."""
    try:
        setup_of(folder, config)
    except ValueError as error:
        return str(error)
    return ""


def outside_link(folder: Path) -> str:
    """Return the first link in a task's folder that leads out of it, "" if there is none. The task would read a file of this machine."""
    home = folder.resolve()
    for place, folders, files in os.walk(home):
        for path in (Path(place, name) for name in sorted((*folders, *files))):
            if path.is_symlink() and not path.resolve().is_relative_to(home):
                return str(path.relative_to(home))
    return ""


def setup_of(folder: Path, config: EnvironmentConfig) -> Setup:
    """Return what a session of a task begins with. Raise ValueError if the task needs an image, with the reason.

    Without a Dockerfile, all files of ``environment`` are in the working folder; without that folder there are none: git keeps no empty
    one.
    """
    if config.docker_image:
        raise ValueError(f"docker_image = {config.docker_image!r} in task.toml")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (folder / name).exists():
            raise ValueError(f"environment/{name}")
    if config.gpus or config.tpu or config.mcp_servers:
        raise ValueError("gpus, a tpu or mcp_servers in task.toml")
    if not (folder / "Dockerfile").exists():
        target = config.workdir or _WORKDIR
        return _writable(Setup(target, {}, ((folder, target),) if folder.is_dir() else ()))
    workdir, env, copies = "/", dict[str, str](), list[tuple[Path, str]]()
    for line, name, value in _instructions((folder / "Dockerfile").read_text(encoding="utf-8")):
        place = f"line {line} of environment/Dockerfile"
        if name == "FROM":
            image = value.split()[0].rpartition("/")[2].partition(":")[0]
            if image not in _PLAIN:
                raise ValueError(f"FROM {value} in {place}")
        elif name == "WORKDIR":
            workdir = str(PurePosixPath(workdir) / value)
        elif name == "COPY" and "--from" not in value and not value.startswith("["):
            copies += _copies(folder, workdir, value, place)
        elif name == "ENV":
            env.update(_variables(value))
        elif name not in _WITHOUT_EFFECT:
            raise ValueError(f"{name} in {place}")
    return _writable(Setup(config.workdir or workdir, env, tuple(copies)))


def _writable(setup: Setup) -> Setup:
    """Raise ValueError if a session has not the folders of a task. ``/`` is the working folder of a Dockerfile that names none."""
    for path in (setup.workdir, *(target for _, target in setup.copies)):
        if path != "/" and not any(PurePosixPath(path).is_relative_to(folder) for folder in (*FOLDERS, "/tmp")):
            raise ValueError(f"it works in {path}, and a session only in /tmp, {', '.join(FOLDERS)}")
    return setup


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, name and value of each instruction."""
    begun, words = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begun = begun or number
        words += line.strip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            name, _, value = words.strip().partition(" ")
            yield begun, name.upper(), value.strip()
            begun, words = 0, ""


def _copies(folder: Path, workdir: str, value: str, place: str) -> Iterator[tuple[Path, str]]:
    *sources, target = (word for word in value.split() if not word.startswith("--"))
    at = str(PurePosixPath(workdir) / target)
    for source in sources:
        found = sorted(folder.glob(source.strip("/"))) if source.strip("./") else [folder]
        if not found:
            raise ValueError(f"COPY {value} in {place}, which names no file")
        for path in found:
            if not path.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"COPY {value} in {place}, which reads outside of environment")
            into = path.is_dir() or not (len(sources) > 1 or target.endswith(("/", ".")))
            yield path, at if into else f"{at}/{path.name}"


def _variables(value: str) -> dict[str, str]:
    if "=" not in value.split()[0]:  # ENV NAME the value
        name, _, rest = value.partition(" ")
        return {name: rest.strip()}
    return {name: text.strip("\"'") for name, _, text in (pair.partition("=") for pair in value.split())}
