"""Weights through files in a folder that trainer and producers share, for example on a network file system."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from rlcore_plugin_workers.background import BackgroundPublisher, BackgroundReceiver, HostVersion

from rlcore.api.weights import HostLayout, OnFailure, WeightsError, WeightTransfer


class FileOptions(BaseModel):
    """Options of the transfer ``acme_files``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str = Field("", description="folder that all processes see; empty: the one for temporary files of this host")
    poll_seconds: float = Field(0.01, gt=0, description="how often a producer looks for a newer file")


class FilePublisher(BackgroundPublisher):
    """Writes each version to its own file, which gets its name when it is complete, and removes older ones."""

    def __init__(self, folder: str, deadline: float, bucket_bytes: int, on_failure: OnFailure | None) -> None:
        self._changed = threading.Condition()
        self._folder = Path(tempfile.mkdtemp(prefix="acme-weights-", dir=folder or None))
        super().__init__(deadline, bucket_bytes, on_failure)

    def address(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def _send(self, held: HostVersion) -> None:
        layout, flat = held.layout, held.memory.flat[: held.layout.size]
        checksums = layout.seal(flat, range(len(layout.offsets)))
        text = layout.to_bytes()
        part = self._folder / "part"
        part.write_bytes(b"".join((len(text).to_bytes(8, "little"), text, checksums.tobytes(), flat.tobytes())))
        older = sorted(self._folder.glob("*.weights"))
        part.replace(self._folder / f"{layout.version:012d}.weights")
        for path in older:
            path.unlink()

    def _free(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class FileReceiver(BackgroundReceiver):
    """Looks for a newer file again and again."""

    def __init__(self, name: str, folder: str, poll_seconds: float, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self._folder, self._poll_seconds = Path(folder), poll_seconds
        self._seen = -1
        self._stop = threading.Event()
        if not self._folder.is_dir():
            raise WeightsError(f"producer {name} cannot see the folder {folder} of the trainer; set folder in [weights.options]")
        self._start()

    def _fetch(self) -> bool:
        newest = max(self._folder.glob("*.weights"), default=None)
        if newest is None or int(newest.stem) <= self._seen:
            return not self._stop.wait(self._poll_seconds)
        try:
            data = newest.read_bytes()
        except FileNotFoundError:  # a newer file has replaced it
            return True
        self._seen = int(newest.stem)
        length = int.from_bytes(data[:8], "little")
        layout = HostLayout.from_bytes(data[8 : 8 + length])
        rest = memoryview(data)[8 + length :]
        tensors_at = 8 * len(layout.offsets)
        checksums, flat = np.frombuffer(rest[:tensors_at], np.uint64), np.frombuffer(rest[tensors_at:], np.uint8)
        self._arrived(layout.verified(flat, checksums))
        return True

    def _interrupt(self) -> None:
        self._stop.set()


class FileTransfer(WeightTransfer):
    """The transfer ``acme_files``."""

    def __init__(self, options: FileOptions) -> None:
        self._options = options

    def publisher(self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None) -> FilePublisher:
        """See WeightTransfer."""
        return FilePublisher(self._options.folder, deadline, bucket_bytes, on_failure)

    def receiver(self, *, name: str, address: str, deadline: float, on_news: Callable[[], None]) -> FileReceiver:
        """See WeightTransfer."""
        return FileReceiver(name, address, self._options.poll_seconds, on_news)
