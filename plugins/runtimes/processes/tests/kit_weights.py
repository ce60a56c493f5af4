"""Snapshots that tell their version, and both ends of the shared transport in one process, closed at the end of a test."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from rlcore_plugin_processes.shared import SharedPublisher
from rlcore_plugin_processes.shared_receiver import SharedReceiver

from rlcore.api import Tensor
from rlcore.api.weights import HostLayout, Receiver, Snapshot, WeightsError

BUCKET = 10_000
"""Bytes of a bucket in these tests."""
PATIENCE = 60.0
"""Seconds after which a test gives up; no test takes them."""


def tensor(values: np.ndarray, dtype: str = "float32") -> Tensor:
    """A tensor of an array as it is."""
    return Tensor(dtype=dtype, shape=values.shape, data=values)


def snapshot_of(version: int, sizes: tuple[int, ...] = (300, 1, 70)) -> Snapshot:
    """Tensors t0, t1, … filled with the version."""
    return Snapshot.of(version, {f"t{index}": tensor(np.full(size, version, np.float32)) for index, size in enumerate(sizes)})


def holds_its_version(snapshot: Snapshot) -> bool:
    """Whole, and nothing in it of another version."""
    snapshot.verify()
    return all(bool((one.data == snapshot.version).all()) for one in snapshot.tensors.values())


class News:
    """What ``on_news`` of a receiver is: counts, and can be waited for."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> None:
        self._event.set()

    def wait(self) -> None:
        """The next time that there is something, or since the last wait."""
        assert self._event.wait(PATIENCE), "nothing came"
        self._event.clear()


def wait_for(receiver: Receiver, version: int) -> Snapshot:
    """This version or a newer one, as soon as it is there."""
    assert isinstance(receiver.on_news, News)
    while (snapshot := receiver.newer_than(version - 1)) is None:
        receiver.on_news.wait()
    return snapshot


class Ends:
    """Makes publishers and receivers."""

    def __init__(self) -> None:
        self._made: list[SharedPublisher | SharedReceiver] = []
        self.failures: list[WeightsError] = []
        self.drops: list[str] = []
        self.failed = threading.Event()

    def publisher(self, deadline: float = PATIENCE) -> SharedPublisher:
        """One that keeps what it has to say in ``failures``."""

        def on_failure(error: WeightsError) -> None:
            self.failures.append(error)
            self.failed.set()

        made = SharedPublisher(deadline, BUCKET, on_failure)
        made.on_drop = self.drops.append
        self._made.append(made)
        return made

    def receiver(self, publisher: SharedPublisher, name: str = "p0", deadline: float = PATIENCE) -> SharedReceiver:
        """One whose ``on_news`` is a News."""
        made = SharedReceiver(name, publisher.address(), deadline, News())
        self._made.append(made)
        return made

    def close(self) -> None:
        """All of them."""
        for made in reversed(self._made):
            made.close()


def mappings() -> int:
    """Buffers of weights that this process maps or has open. To collect garbage takes long in a process that has imported much."""
    if _mapped():
        gc.collect()
    return _mapped()


def _mapped() -> int:
    maps = Path("/proc/self/maps").read_text().count("memfd:rlcore-weights")
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that this loop had open
            links.append(str(entry.readlink()))
    return maps + sum("rlcore-weights" in link for link in links)


class Gate:
    """Stops a sender before the second bucket of a transfer and after it: put ``seal`` in place of ``HostLayout.seal``."""

    def __init__(self, seal: Callable[..., np.ndarray]) -> None:
        self._seal = seal
        self._calls = 0
        self.reached = threading.Event()
        self.open = threading.Event()

    def seal(self, layout: HostLayout, memory: np.ndarray, places: Sequence[int]) -> np.ndarray:
        if self._calls:
            self.reached.set()
            assert self.open.wait(PATIENCE), "nobody opened the gate"
        self._calls += 1
        return self._seal(layout, memory, places)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Closed at the end, and nothing left of them."""
    made = Ends()
    yield made
    made.close()
    assert mappings() == 0, "a buffer is left"
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("weights-")}, "a thread is left"
