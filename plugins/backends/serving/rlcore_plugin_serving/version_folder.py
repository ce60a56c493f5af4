"""Versions of the weights as folders of one file, which servers read: `ROOT/rlcore-…/version-7/model.safetensors`."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from safetensors import SafetensorError
from safetensors.torch import save_file

from rlcore.api import ConfigError, RunError
from rlcore_plugin_serving.incoming_weights import IncomingWeights

__all__ = ["VersionFolders"]

_LOCK = "owner"


class VersionFolders:
    """The folder of this producer in the shared one. A version gets its final name once it is complete.

    The folder is locked while its producer runs, so that a later producer removes the folder of a killed one. ``there``: the path of the
    shared folder on the servers.
    """

    def __init__(self, shared: Path, there: str, model: Path) -> None:
        self._config = model / "config.json"
        try:
            _sweep(shared)
            self._root = shared / f"rlcore-{uuid4().hex[:12]}"
            new = self._root.with_name(f"new-{self._root.name}")
            new.mkdir()
            self._owner = (new / _LOCK).open("w")
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(self._root)  # locked before another producer's sweep can find it
        except OSError as error:
            raise ConfigError(
                f"inference.options.shared_folder {str(shared)!r} cannot be written ({error}); name a folder that producers and servers see"
            ) from error
        self._there = f"{there.rstrip('/')}/{self._root.name}"
        self._written: list[Path] = []

    def write(self, incoming: IncomingWeights) -> str:
        """Write a whole version and return its folder, as the servers name it. Raises RunError if the disk refuses the write."""
        folder = self._root / f"version-{incoming.version}-{uuid4().hex[:6]}"
        half = folder.with_name(f"half-{folder.name}")
        try:
            half.mkdir()
            save_file(incoming.whole_apart(), half / "model.safetensors", metadata={"format": "pt"})
            with (half / "model.safetensors").open("rb") as file:
                os.fsync(file.fileno())
            if self._config.is_file():
                shutil.copyfile(self._config, half / "config.json")
            half.rename(folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(half, ignore_errors=True)
            raise RunError(f"version {incoming.version} could not be written into {self._root} ({error})") from error
        self._written.append(folder)
        return f"{self._there}/{folder.name}"

    def keep_newest(self) -> None:
        """Remove all versions except the one that was written last."""
        for folder in self._written[:-1]:
            shutil.rmtree(folder, ignore_errors=True)
        del self._written[:-1]

    def close(self) -> None:
        """Remove the whole folder."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._owner.close()


def _sweep(shared: Path) -> None:
    """Remove folders whose producer ended without removing them."""
    for lock in shared.glob(f"rlcore-*/{_LOCK}"):
        with suppress(OSError), lock.open("w") as file:  # a held lock, or a folder that was just removed
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
