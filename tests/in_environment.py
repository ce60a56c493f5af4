"""Run tests in the virtual environment of an engine, which holds neither rlcore nor pytest: both come from this one, by links.

    python -m tests.in_environment FOLDER [any argument of pytest]

Warnings of the engine's packages are shown and are no errors. ``--again`` is that of ``tests.suite``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from rlcore_plugin_workers.environments import interpreter, link_own_packages

from rlcore.contracts.errors import RlcoreError
from tests.groups.leash import Leash
from tests.suite import FAILED, once_more

RUNNERS = ("pytest", "pytest-timeout", "iniconfig")
ROOT = Path(__file__).parents[1]
AGAIN = "--again"


def main(words: list[str]) -> int:
    environment, *arguments = words
    with TemporaryDirectory(prefix="rlcore-") as packages:
        link_own_packages(Path(packages))
        link_runners(Path(packages))
        try:
            python, variables = interpreter(Path(environment), Path(packages))
        except RlcoreError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        again = AGAIN in arguments
        command = [python, "-m", "pytest", "-o", f"cache_dir={packages}/cache", "-o", "filterwarnings=default"]
        command += [argument for argument in arguments if argument != AGAIN]
        environ = {**os.environ, **variables}
        code = subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
        return once_more(command, Leash.load(), environ, Path(packages, "cache")) if again and code == FAILED else code


def link_runners(packages: Path) -> None:
    """Link what these distributions have at the top of site-packages."""
    for name in RUNNERS:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(Path(str(found.locate_file(top))).resolve())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
