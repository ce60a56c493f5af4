"""A virtual environment for tests: the third-party packages of the one that runs them, and nothing of rlcore."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

__all__ = ["SITE", "other_environment"]

SITE = Path(sysconfig.get_path("purelib"))
OURS = re.compile(r"_*(editable|rlcore)|.*\.pth$")


def other_environment(folder: Path, without: tuple[str, ...] = ()) -> Path:
    """Make it, of links, without some packages; it has a module ``only_there``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for entry in SITE.iterdir():
        if not OURS.match(entry.name) and entry.name.partition("-")[0].partition(".")[0] not in without:
            (site / entry.name).symlink_to(entry)
    (site / "only_there.py").write_text("VALUE = 5\n")
    return folder
