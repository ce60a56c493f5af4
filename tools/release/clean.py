"""Install the built distributions into a new environment of one Python, and use them there as a newcomer would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from email import message_from_bytes
from pathlib import Path
from typing import Any

from tools.dependencies import normal, requirement
from tools.release.local_index import serve

WHOLE = ("rlcore[all]", "rlcore-plugin-code")
"""What pip installs, as a user types it after the first release."""
_IMPORTS = """
import importlib, pkgutil, sys
from rlcore.contracts.errors import ConfigError
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:  # of a library that an extra brings, or a test tool
            if error.name.startswith("rlcore"):
                raise
        except ConfigError as error:  # rlcore.testing.chat_tokenizer, without rlcore-plugin-transformers
            if "is not installed" not in str(error):
                raise
"""
_FAKES = """
import sys
from pathlib import Path
from rlcore.testing import RunTester
tester = RunTester(Path(sys.argv[1]).resolve()).with_fakes()
run = tester.fake_run()
tester.run("train", run, "--dry-run").assert_ok()
assert tester.run("train", run, "--json").assert_ok().json["steps"] == 3
"""
_TASK = "from pathlib import Path; from rlcore_plugin_quickstart.assets import prepare; prepare(Path('demo'), 0, print)"


class TrialError(Exception):
    """What failed in the new environment; the text is one sentence and what the command printed."""


class InputError(Exception):
    """A wheel or a Python that cannot be tried, in one sentence."""


def check_wheels(dist: Path) -> None:
    """Read every file of every wheel."""
    for wheel in sorted(dist.glob("*.whl")):
        try:
            with zipfile.ZipFile(wheel) as archive:
                damaged = archive.testzip()
            _metadata(wheel)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
            raise InputError(f"{wheel} is not a complete wheel ({error}); type make wheels") from error
        if damaged:
            raise InputError(f"{wheel} is not a complete wheel ({damaged} is damaged); type make wheels")


def find_python(python: Path | str) -> Path:
    """Return the absolute path of a Python that answers. Links stay links: a Python finds its environment by them."""
    found = shutil.which(python)
    if found is None:
        raise InputError(f"--python {python} names no program that can be run; type the path of a Python")
    ask, no_answer = [found, "-c", "import sys; print(sys.hexversion)"], f"--python {python} is no Python; type the path of one"
    try:
        done = subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(no_answer) from error
    if done.returncode or not done.stdout.strip().isdigit():
        raise InputError(no_answer)
    return Path(found).absolute()


def without_torch(dist: Path) -> list[str]:
    """Return the names of our distributions that install without torch, their own requirements included."""
    needs: dict[str, set[str]] = {}
    for wheel in dist.glob("*.whl"):
        asked = [text for text in _metadata(wheel).get_all("Requires-Dist", []) if ";" not in text]
        needs[_name(wheel)] = {requirement(text, "").name for text in asked}

    def heavy(name: str) -> bool:
        return name == "torch" or any(heavy(other) for other in needs.get(name, ()))

    return sorted(name for name in needs if not heavy(name))


def try_out(python: Path | str, dist: Path, folder: Path, *, whole: bool) -> dict[str, Any]:
    """Install from ``dist`` into ``folder/env`` and use it; return versions and seconds. ``whole``: all, and two steps are trained."""
    begun, names = time.monotonic(), list(WHOLE) if whole else without_torch(dist)
    _run(folder, python, "-m", "venv", "env")
    here = folder / "env" / "bin"
    with serve(dist, _index(folder, here / "pip")) as index:
        _run(folder, here / "pip", "install", "--quiet", "--constraint", dist / "constraints.txt", *names, index=index)
    ready = time.monotonic()
    ours = installed(folder, dist)
    version = _run(folder, here / "rlcore", "--version").split()[1]
    _expect(version == ours["rlcore"], f"rlcore --version prints {version}, and the wheel is {ours['rlcore']}")
    found = json.loads(_run(folder, here / "rlcore", "plugins", "--json"))
    wrong = [row["distribution"] for row in found["plugins"] if row["status"] != "ok" or row["problems"]]
    _expect(not wrong and not found["notes"], f"rlcore plugins complains of {wrong or found['notes']}")
    _run(folder, here / "python", "-W", "error", "-m", "compileall", "-q", "-f", *_packages(folder))
    _run(folder, here / "python", "-c", _FAKES, folder / "fakes")
    if not whole:
        _run(folder, here / "python", "-c", _IMPORTS, *(path.name for path in _packages(folder)))
    else:
        _run(folder, here / "python", "-c", _TASK)
        words = ("train", "demo/run.toml", "--algo", "dapo", "--max-steps", "2", "-ei", "0", "--json")
        summary = json.loads(_run(folder, here / "rlcore", *words).splitlines()[-1])
        _expect(summary["steps"] == 2, f"the run trained {summary['steps']} steps instead of 2")
    ended = time.monotonic()
    seconds = {"install_seconds": round(ready - begun, 1), "use_seconds": round(ended - ready, 1)}
    made = _run(folder, here / "python", "-c", "import platform; print(platform.python_version())").strip()
    return {"python": made, "distributions": len(ours), "trained": whole, **seconds}


def _index(folder: Path, pip: Path) -> str:
    """Return the index that pip would ask without ours: its help names the one of its variables and configuration."""
    found = re.search(r"--index-url <url>.*?\(default (\S+)\)", _run(folder, "env", "COLUMNS=1000", pip, "install", "--help"))
    _expect(found is not None, f"{pip} install --help names no index")
    assert found is not None
    return found[1]


def installed(folder: Path, dist: Path) -> dict[str, str]:
    """Return the version of each distribution of ours that is installed, after a comparison with the wheels, file by file."""
    wheels, found = {_name(wheel): wheel for wheel in dist.glob("*.whl")}, {}
    for record in _site(folder).glob("rlcore*.dist-info/RECORD"):
        name = normal(record.parent.name.split("-")[0])
        with zipfile.ZipFile(wheels[name]) as archive:
            (listed,) = (one for one in archive.namelist() if one.endswith(".dist-info/RECORD"))
            shipped = {line for line in archive.read(listed).decode().splitlines() if "RECORD" not in line}
        _expect(
            shipped <= set(record.read_text(encoding="utf-8").splitlines()),
            f"{name} was not installed from {dist}: pip found another package of that name",
        )
        found[name] = _metadata(wheels[name])["Version"]
    return found


def _site(folder: Path) -> Path:
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    return site


def _packages(folder: Path) -> list[Path]:
    return [path.parent for path in _site(folder).glob("rlcore*/__init__.py")]


def _name(wheel: Path) -> str:
    return normal(wheel.name.split("-")[0])


def _metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one))
        return message_from_bytes(archive.read(name))


def _expect(holds: bool, sentence: str) -> None:
    if not holds:
        raise TrialError(sentence)


def _run(folder: Path, *words: Path | str, index: str = "") -> str:
    """Return standard output of a command in ``folder``, without the variables by which the Python that runs this one is known."""
    own: Mapping[str, str] = {"PIP_INDEX_URL": index} if index else {}
    kept: Iterable[tuple[str, str]] = ((key, value) for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV")))
    environment = {**dict(kept), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **own}
    done = subprocess.run([*map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    _expect(done.returncode == 0, f"{' '.join(map(str, words))[:300]} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
