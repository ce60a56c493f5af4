"""The commands that install distributions. The distributions of this repository are on no index: third parties may own their names there.

Therefore a command never gives pip such a name alone. It names a folder of the checkout, or a wheel.
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rlcore.registry.known_plugins import OFFERS

__all__ = ["EXTRAS", "NEEDS_EXTRA", "RELEASED", "WHEELS", "install_line", "long_name"]

_PREFIX = "rlcore-plugin-"
_LONG = {"gateway": "rlcore-gateway"}
"""Distributions whose name does not begin as those of the plugins."""


def long_name(short: str) -> str:
    """Return the name of a distribution of this repository."""
    return _LONG.get(short, f"{_PREFIX}{short}")


RELEASED = frozenset(OFFERS)
"""The plugins of this repository, and the libraries that they share."""

REQUIRED = {
    "adapters": ("extraction",),
    "agents": ("gateway", "workers"),
    "code": ("sandbox",),
    "harbor": ("agents", "sandbox"),
    "judge": ("extraction",),
    "math": ("extraction",),
    "nemo-gym": ("gateway", "workers"),
    "openenv": ("gateway",),
    "processes": ("workers",),
    "ray": ("workers",),
    "sglang": ("serving",),
    "tools": ("processes", "workers"),
    "verifiers": ("agents",),
    "vllm": ("serving", "workers"),
}
"""The distributions of this repository that another one requires: without them on the line, pip would look for them on an index."""

_FOLDERS = {"agents": "program", "nemo-gym": "nemo_gym", "sandbox": "local"}
"""Folders of the checkout whose name differs from the plugin in them."""

EXTRAS = {
    "agents": ("agents", "gateway", "workers"),
    "datasets": ("datasets",),
    "quickstart": (
        "adapters",
        "agents",
        "datasets",
        "extraction",
        "gateway",
        "grpo",
        "math",
        "processes",
        "quickstart",
        "tools",
        "torch",
        "transformers",
        "workers",
    ),
    "ray": ("processes", "ray", "workers"),
}
"""The extras of rlcore that a command may name, and the plugins of this repository that each installs."""

NEEDS_EXTRA = {"rlcore-plugin-quickstart": "rlcore[quickstart]"}
"""Plugins that are useful only with everything that an extra installs, and this extra, which the command installs."""

WHEELS = "FOLDER_WITH_WHEELS"
"""A placeholder for the folder that ``make wheels`` filled, if its place is not known."""


def install_line(what: str, *, upgrade: bool = False) -> str:
    """Return the command that installs ``what``.

    ``what`` is ``rlcore``, rlcore with an extra of ``EXTRAS``, a plugin of this repository, or the distribution of another author, which
    pip finds by its name.

    :param upgrade: install a newer version than the installed one.
    """
    name, _, extra = what.rstrip("]").partition("[")
    if name != "rlcore" and name not in RELEASED:
        return f"pip install {'-U ' if upgrade else ''}{what}"
    parts = [*map(long_name, EXTRAS[extra]), "rlcore"] if extra else [name]
    parts += [long_name(short) for part in tuple(parts) for short in REQUIRED.get(_short(part), ())]
    parts = list(dict.fromkeys(parts))  # an extra may include distributions that one of its plugins requires
    checkout, wheels = _source()
    folders = [_folder(checkout, part) for part in parts] if checkout else [None]
    if None not in folders:
        words = [f"-e {shlex.quote(f'{folder}[{extra}]' if extra and folder == checkout else str(folder))}" for folder in folders]
        return f"{f'git -C {shlex.quote(str(checkout))} pull && ' if upgrade else ''}pip install {' '.join(words)}"
    words = [f"{wheels}/{part.replace('-', '_')}-*.whl" for part in parts]
    # # The extra is given by name after the file of rlcore: pip then takes rlcore from the file.
    return " ".join(["pip install", *(["-U"] if upgrade else []), *words, *([shlex.quote(what)] if extra else [])])


def _short(part: str) -> str:
    return next((short for short, long in _LONG.items() if long == part), part.removeprefix(_PREFIX))


def _folder(checkout: Path, part: str) -> Path | None:
    """Return the folder of the part in the checkout, None if there is none."""
    short = _short(part)
    return checkout if part == "rlcore" else next(checkout.glob(f"plugins/*/{_FOLDERS.get(short, short)}"), None)


def _source() -> tuple[Path | None, str]:
    """Return the checkout from which rlcore was installed, None if there is none, and the folder of the wheels as a shell word."""
    here = Path(__file__).parents[2]
    if _is_checkout(here):
        return here, WHEELS
    for found in distributions(name="rlcore"):
        address = urlsplit(str(json.loads(found.read_text("direct_url.json") or "{}").get("url", "")))
        path = Path(unquote(address.path))
        if address.scheme == "file" and _is_checkout(path):
            return path, WHEELS
        if address.scheme == "file" and path.suffix == ".whl" and path.parent.is_dir():
            return None, shlex.quote(str(path.parent))
    return None, WHEELS


def _is_checkout(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() and (folder / "plugins").is_dir()
