"""A fake engine and a fake of vLLM's trainer engine, to hold the words of the transfer against ``EngineTransferSuite`` without vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rlcore_plugin_serving.joined_transfer import FINISH, INIT, START, UPDATE, JoinedTransfer
from rlcore_plugin_vllm.engine_group import EngineGroup
from rlcore_plugin_vllm.engine_publisher import EnginePublisher, EngineReceiver
from rlcore_plugin_workers.background import HostVersion

from rlcore.api import Bucket, InferenceCapabilities, InFlight, Tensor, WeightsManifest
from rlcore.api.weights import WeightTransfer
from rlcore.testing import FakeInference


class RecordedWorker:
    """A worker of vLLM as the engine calls it: its methods by name, in vLLM's order; an order out of turn is an error, as vLLM's."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.calls: list[str] = []
        self.active = False
        self.digest = ""

    def call(self, method: str, kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        self.calls.append(method)
        if method == INIT:
            assert kwargs is not None
            self.first = kwargs["init_info"]["rank_offset"]
            assert kwargs["init_info"]["backend"] == "recorded"
        elif method == START:
            assert not self.active, "an update is active already"
            self.active = True
        elif method == UPDATE:
            assert self.active
            assert kwargs is not None
            self.arrays |= {name: np.array(array) for name, array in kwargs["update_info"]["arrays"].items()}
        elif method == FINISH:
            assert self.active, "no update is active"
            self.active = False
        elif method == "compute_weight_checksums":
            return [{name: self.digest or str(array.sum()) for name, array in self.arrays.items()}]
        return [None]


class RecordedJoining(FakeInference):
    """The fake engine, with weights by the orders of the transfer."""

    capabilities = InferenceCapabilities(in_flight=InFlight.FINISH, sleeps=True, counter_noise=True, transfers=frozenset({"vllm_nccl"}))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.worker = RecordedWorker()
        self.joined: JoinedTransfer | None = None

    def describe(self) -> Mapping[str, Any]:
        return {"ranks": 2, "head_of": ""}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        if self.joined is not None:
            self.joined.leave()
            self.joined = None
        self.joined = JoinedTransfer(info, self.worker.call)

    def receive(self, bucket: Bucket) -> None:
        assert self.joined is not None
        self.joined.receive()

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        super().begin_update(version, manifest, in_flight)
        self._manifest, self._coming_version = manifest, version

    def finish_update(self) -> int:
        assert self.joined is not None
        self.joined.finish()
        arrays, infos = self.worker.arrays, self._manifest.tensors
        tensors = {info.name: Tensor(dtype=info.dtype, shape=info.shape, data=arrays[info.name]) for info in infos}
        super().receive(Bucket(version=self._coming_version, index=0, tensors=tensors))
        return super().finish_update()


class RecordedSender:
    """In the place of vLLM's factory; its engine sends two tensors at a time, by the words themselves."""

    backend = "recorded"

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.ended = 0

    def open(self, client: EngineGroup, *, ranks: int, largest: int) -> RecordedSender._Engine:
        self.opened.append(ranks)
        client.init_weight_transfer_engine({"rank_offset": 1, "world_size": ranks + 1})
        return self._Engine(client, self)

    def tensors(self, held: HostVersion) -> Iterator[tuple[str, np.ndarray]]:
        layout, flat = held.layout, held.memory.flat
        for info, start in zip(layout.manifest.tensors, layout.offsets, strict=True):
            yield info.name, flat[start : start + info.nbytes].view(info.carrier).reshape(info.shape)

    class _Engine:
        def __init__(self, client: EngineGroup, sender: RecordedSender) -> None:
            self.client, self.sender = client, sender

        def send_weights(self) -> None:
            self.client.start_weight_update()
            for name, array in self.client.tensors():
                self.client.update_weights({"arrays": {name: array}})
            self.client.finish_weight_update()

        def shutdown(self) -> None:
            self.sender.ended += 1


class RecordedTransfer(WeightTransfer):
    """Both ends, with the recorded sender."""

    def __init__(self) -> None:
        self.sender = RecordedSender()

    def publisher(self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: Any = None) -> EnginePublisher:
        return EnginePublisher(deadline, bucket_bytes, on_failure, sender=self.sender)

    def receiver(self, *, name: str, address: Any, deadline: float, on_news: Any) -> EngineReceiver:
        return EngineReceiver(name, address, on_news)
