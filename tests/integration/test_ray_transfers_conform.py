"""The transfers of the Ray runtime keep the rules of every weight transfer; each end is an actor, as in a run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import ray

from rlcore.api.weights import Probe, Publisher, Receiver, Snapshot, WeightSource
from rlcore.contracts.snapshots import BUCKET_BYTES, Tensor
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import WeightTransferSuite
from rlcore.testing.transfers.transfer_suite import WrongSource
from rlcore.testing.weights import HostSource, mis_sealing
from tests.integration.ray.small_cluster import short_folder

pytestmark = pytest.mark.full
_END_SECONDS = 10.0


class End:
    """An actor with one end of a transfer after the other: to start a process for each takes longer than what it is for."""

    def begin(self, transfer: str, deadline: float, name: str = "", address: Any = None) -> None:
        made = Registry.discover().load("transfer", transfer)()
        self._news = threading.Semaphore(0)
        self._over = False
        self._end: Any = (
            made.receiver(name=name, address=address, deadline=deadline, on_news=self._news.release)
            if name
            else made.publisher(deadline=deadline, bucket_bytes=BUCKET_BYTES)
        )
        self._mis_sealing = ExitStack()

    def publish(self, version: int, tensors: dict[str, Tensor], probe: Probe | None, odd: tuple[str, Tensor | None] | None) -> None:
        tensors = {name: replace(tensor, data=np.array(tensor.data)) for name, tensor in tensors.items()}  # what arrived is read-only
        source = HostSource(tensors) if odd is None else WrongSource(tensors, *odd)
        self._end.publish(version, source, probe)
        if version == 1 and odd is None:
            for tensor in tensors.values():  # the trainer goes on
                tensor.data[...] = 9

    def mis_seal(self, name: str) -> None:
        self._mis_sealing.enter_context(mis_sealing(name))

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._end, method)(*arguments)

    def news(self) -> bool:
        """Whether there is any, once there is or it is over."""
        self._news.acquire()
        return not self._over

    def end(self) -> None:
        self._mis_sealing.close()
        self._end.close()
        self._over = True
        self._news.release()


class RemotePublisher(Publisher):
    def __init__(self, actor: Any) -> None:
        super().__init__()
        self.actor = actor

    def address(self) -> Any:
        return ray.get(self.actor.call.remote("address"))

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        assert isinstance(source, HostSource)
        odd = (source.name, source.instead) if isinstance(source, WrongSource) else None
        copies = {name: replace(tensor, data=np.array(tensor.data)) for name, tensor in source.tensors.items()}
        ray.get(self.actor.publish.remote(version, copies, probe, odd))

    def close(self) -> None:
        ray.get(self.actor.call.remote("close"))


class RemoteReceiver(Receiver):
    def __init__(self, actor: Any, name: str, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self.actor = actor
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while ray.get(self.actor.news.remote()):
                self.on_news()
        except ray.exceptions.RayError:
            return  # the test is over

    def newer_than(self, version: int) -> Snapshot | None:
        got: Snapshot | None = ray.get(self.actor.call.remote("newer_than", version))
        return got

    def release(self, version: int) -> None:
        ray.get(self.actor.call.remote("release", version))

    def close(self) -> None:
        ray.get(self.actor.call.remote("close"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # its workers cannot import a test
    with short_folder() as folder:
        ray.init("local", _temp_dir=str(folder), num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()
            ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class OfRay(WeightTransferSuite):
    transfer = ""
    free: ClassVar[list[Any]] = []
    """Actors whose test is over."""

    @pytest.fixture(autouse=True)
    def _actors(self, cluster: None) -> Iterator[None]:
        self.actors: list[Any] = []
        yield
        self.teardown_method()
        self.setup_method()
        for actor in self.actors:
            try:
                ray.get(actor.end.remote(), timeout=_END_SECONDS)
            except ray.exceptions.RayError:
                ray.kill(actor)
            else:
                self.free.append(actor)

    def _actor(self, *arguments: Any) -> Any:
        made = self.free.pop() if self.free else ray.remote(End).options(num_cpus=0, max_concurrency=6).remote()
        self.actors.append(made)
        ray.get(made.begin.remote(self.transfer, self.patience, *arguments))
        return made

    def make_publisher(self) -> Publisher:
        return RemotePublisher(self._actor())

    @contextmanager
    def mis_sealing(self, publisher: Publisher, name: str) -> Iterator[None]:
        assert isinstance(publisher, RemotePublisher)
        ray.get(publisher.actor.mis_seal.remote(name))
        yield

    def make_receiver(self, name: str, address: Any, on_news: Callable[[], None]) -> Receiver:
        return RemoteReceiver(self._actor(name, address), name, on_news)


class TestObjectStore(OfRay):
    transfer = "object_store"


class TestCollective(OfRay):
    transfer = "collective"
