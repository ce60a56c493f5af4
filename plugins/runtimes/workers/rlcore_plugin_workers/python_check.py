"""Virtual environments other than the driver's: whether rlcore can run in one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError

__all__ = ["answer_of", "compatible_python", "installing"]

_FITNESS = (
    "import json, sys; from importlib.util import find_spec as f; "
    "print(json.dumps([sys.version_info[:2], [name for name in sys.argv[1:] if not f(name)]]))"
)


def compatible_python(environment: Path, module: str = "", make: str = "", *, same: bool = True) -> Path:
    """Return the Python of an environment.

    :param make: what to type for an environment that has ``module``.
    :param same: its minor version must be that of this Python, because functions are sent there.
    :raises ConfigError: there is no Python, its version does not fit, or it lacks ``module`` or a package that rlcore imports.
    """
    folder = environment.absolute()
    python = folder / "bin" / "python"
    if not os.path.lexists(python):
        if len(environment.parts) == 1 and not folder.exists():  # a name, not a folder
            make = f"rlcore env build {environment}, and give the folder that it prints (later: rlcore env path {environment})"
        raise ConfigError(f"environment {folder} has no bin/python; make one: {make or f'{sys.executable} -m venv {folder}'}")
    required = [re.split(r"[^\w.-]", text)[0] for text in distribution("rlcore").requires or () if "extra ==" not in text]
    needs = [*(name.replace("-", "_") for name in required), *([module] if module else [])]
    version, missing = answer_of(str(python), "-I", "-c", _FITNESS, *needs)
    if tuple(version) != sys.version_info[:2] and (same or tuple(version) < (3, 11)):
        here, there = (".".join(map(str, numbers)) for numbers in (sys.version_info[:2], version))
        raise ConfigError(
            f"environment {folder} has Python {there} and the driver has {here}, and functions cannot be sent between them; "
            f"make a new one: {sys.executable} -m venv --clear {folder}"
        )
    if module in missing:
        raise ConfigError(f"environment {folder} lacks {', '.join(missing)}; make one that has it: {make or installing(python, *missing)}")
    if missing:
        raise ConfigError(f"environment {folder} lacks {', '.join(missing)}, which rlcore imports; {installing(python, *missing)}")
    return python


def installing(python: Path, *packages: str) -> str:
    """Return what to type to install packages into the environment of a Python, or what to do if it was built from a lock."""
    names = " ".join(name.replace("_", "-") for name in packages)
    if (python.parents[1] / "rlcore-environment.json").exists():
        return f"it was built from a lock: add {names} to the lock, and build it again with rlcore env build"
    return f"type {python} -m pip install {names}"


def answer_of(python: str, *words: str) -> Any:
    """Return the JSON value that a short program prints in another interpreter."""
    printed = ""
    try:
        done = subprocess.run([python, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        printed = done.stdout.strip()
        return json.loads(printed)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        said = getattr(error, "strerror", "") or getattr(error, "stderr", "").strip() or f"it printed {printed or 'nothing'}"
        raise ConfigError(f"{python} is not a working Python ({said}); make the environment again") from error
