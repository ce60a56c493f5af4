"""The check of the folder for Ray's files. This module does not import Ray, because ``rlcore launch`` calls it too."""

from __future__ import annotations

import os
from pathlib import Path

from rlcore.api import ConfigError

__all__ = ["check_ray_folder"]

_LONGEST = 40
"""The longest path in bytes: Ray makes Unix sockets some 65 bytes below it, and the path of a socket has at most 107 bytes."""


def check_ray_folder(folder: Path) -> None:
    """Raise ConfigError if the path is too long. The machine that starts Ray checks whether it can create the folder."""
    if len(os.fsencode(folder)) > _LONGEST:
        raise ConfigError(
            f"--ray-dir {folder} is too long: Ray puts its sockets below it, so it can have at most {_LONGEST} bytes; type a shorter path"
        )
