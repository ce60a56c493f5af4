"""Which folder can hold Ray's files. Imports no Ray: whoever only writes down how a cluster is started asks here too."""

from __future__ import annotations

import os
from pathlib import Path

from rlcore.api import ConfigError

__all__ = ["check_ray_folder"]

_LONGEST = 40
"""Bytes: Ray makes Unix sockets some 65 bytes below it, and the whole path of one has at most 107."""


def check_ray_folder(folder: Path) -> None:
    """ConfigError where the path is too long; whether it can be made is for the machine to say where Ray starts."""
    if len(os.fsencode(folder)) > _LONGEST:
        raise ConfigError(
            f"--ray-dir {folder} is too long: Ray's sockets lie below it, and {_LONGEST} bytes is the most; type a shorter path"
        )
