"""vLLM's own weight transfer, by its real worker on the CPU and its real factories. CUDA IPC and NCCL need a GPU, so an engine of the
test, registered by vLLM's registry, moves the bytes here: it puts them into files. The calls and their order are those of vLLM's own."""

from __future__ import annotations

import inspect
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from rlcore_plugin_serving import joined_transfer
from rlcore_plugin_vllm.engine_publisher import EnginePublisher, EngineReceiver
from rlcore_plugin_vllm.trainer_senders import VllmSender
from safetensors.torch import load_file, save_file
from vllm.distributed.weight_transfer import (
    TrainerWeightTransferEngine,
    VLLMWeightSyncClient,
    WeightTransferEngine,
    WeightTransferEngineFactory,
    WeightTransferTrainerFactory,
)
from vllm.distributed.weight_transfer.base import TrainerInitInfo, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.worker.gpu_worker import Worker

from rlcore.api import RunError, Snapshot
from rlcore.api.weights import GroupBrokenError
from rlcore.testing import publish, update_engine

CHUNK = 3
"""Tensors that travel at a time."""
TOLERANCE = 1e-5
calls: list[str] = []


@dataclass
class FileInit(WeightTransferInitInfo):
    folder: str


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    path: str


class FileWorkerEngine(WeightTransferEngine[FileInit, FileUpdate]):
    """As vLLM's IPC engine does it: layer by layer, by the model's own loader."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        calls.append("init")

    def start_weight_update(self) -> None:
        calls.append("start")
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict) -> None:  # without the base class's wait for an accelerator, which is not here
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: FileUpdate) -> None:
        calls.append("update")
        self.model.load_weights(list(load_file(update_info.path).items()))

    def finish_weight_update(self) -> None:
        calls.append("finish")
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        calls.append("shutdown")


@dataclass
class FileTrainerInit(TrainerInitInfo):
    backend: ClassVar[str] = "files"
    folder: str


class FileTrainerEngine(TrainerWeightTransferEngine[FileTrainerInit]):
    init_info_cls = FileTrainerInit

    @classmethod
    def trainer_init(cls, init_info, *, client, source=None):
        made = cls(client=client, source=source)
        made.folder = Path(init_info.folder)
        client.init_weight_transfer_engine({"folder": init_info.folder})
        return made

    def send_weights(self) -> None:
        assert [meta.name for meta in self.source.metadata()]
        self.client.start_weight_update()
        named = list(self.source)
        for start in range(0, len(named), CHUNK):
            path = self.folder / f"{start}.safetensors"
            save_file({name: tensor.clone() for name, tensor in named[start : start + CHUNK]}, path)
            self.client.update_weights({"path": str(path)})
        self.client.finish_weight_update()


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    WeightTransferEngineFactory.register_engine("files", FileWorkerEngine)
    WeightTransferTrainerFactory.register_engine("files", FileTrainerEngine)


@contextmanager
def ends() -> Iterator[tuple[EnginePublisher, EngineReceiver, threading.Event]]:
    """Both ends of the transfer, over vLLM's factories."""
    failures: list[Exception] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        sender = VllmSender("files", "cpu", lambda ranks, largest: FileTrainerInit(folder, rank=0))
        publisher, news = EnginePublisher(30.0, 1 << 20, failures.append, sender=sender), threading.Event()
        receiver = EngineReceiver("p0", publisher.address(), news.set)
        try:
            yield publisher, receiver, news
            assert not failures
        finally:
            receiver.close()
            publisher.close()


def joining(engine):
    """An engine on the CPU declares that it joins nothing; this one joins the transfer of the test."""
    engine.capabilities = replace(engine.capabilities, transfers=frozenset({"host", "files"}))
    return engine


def take(engine, receiver: EngineReceiver, news: threading.Event, version: int) -> None:
    """What a producer does, until the engine serves the version."""
    while True:
        assert news.wait(30.0)
        news.clear()
        if (coming := receiver.newer_than(version - 1)) is not None:
            assert update_engine(engine, coming) == version
            receiver.release(version)
            return


def test_versions_come_by_vllms_own_transfer(backend, snapshot, ask, answered):
    engine, sequence = joining(backend()), np.arange(3, 30, dtype=np.int32)
    calls.clear()
    with ends() as (publisher, receiver, news):
        receiver.introduce(engine.describe())
        for version in (1, 2, 3):
            publish(publisher, snapshot(version))
            take(engine, receiver, news, version)
            got = engine.score(sequence)
            drawn = answered(engine, [ask("r", [3, 5, 4], noise=version, max_new_tokens=6)])["r"]
            assert (drawn.versions == version).all()
            other = backend()
            update_engine(other, snapshot(version))
            assert np.abs(got - other.score(sequence)).max() < TOLERANCE
            same = answered(other, [ask("r", [3, 5, 4], noise=version, max_new_tokens=6)])["r"]
            assert same.token_ids.tolist() == drawn.token_ids.tolist()
            assert np.abs(same.logprobs - drawn.logprobs).max() < TOLERANCE
    digests, others = (one._joined._call("compute_weight_checksums") for one in (engine, engine))
    assert digests == others  # what the trainer's side compares between engines
    assert len(digests[0]) >= len(snapshot(1).tensors) // 2
    chunks = -(-(len(snapshot(1).tensors) + 1) // CHUNK)  # and the head that the model ties
    assert calls == ["init", *["start", *["update"] * chunks, "finish"] * 3]


def test_a_group_that_is_built_anew_makes_the_workers_engine_anew(backend, snapshot):
    engine, sequence = joining(backend()), np.arange(3, 30, dtype=np.int32)
    calls.clear()
    for version in (1, 2):
        with ends() as (publisher, receiver, news):
            receiver.introduce(engine.describe())
            engine.epoch = -1
            publish(publisher, snapshot(version))
            take(engine, receiver, news, version)
    assert [call for call in calls if call in ("init", "shutdown")] == ["init", "shutdown", "init"]
    other = backend()
    update_engine(other, snapshot(2))
    assert np.abs(engine.score(sequence) - other.score(sequence)).max() < TOLERANCE


def test_an_update_that_breaks_off_in_the_workers_tears_the_engine(backend, snapshot, monkeypatch):
    engine = joining(backend())
    with ends() as (publisher, receiver, news):
        receiver.introduce(engine.describe())
        monkeypatch.setattr(FileWorkerEngine, "receive_weights", lambda *_: 1 / 0)
        publish(publisher, snapshot(1))
        with pytest.raises(RunError, match="vLLM's workers failed in update_weights: ZeroDivisionError"):
            take(engine, receiver, news, 1)
        with pytest.raises(RunError, match="unfinished version 1"):
            engine.score(np.array([3, 4, 5]))
        with pytest.raises(RunError, match="only a new engine fixes"):
            engine.connect({}, 9)


def test_an_update_that_breaks_off_between_two_orders_does_no_harm_to_the_next(backend, snapshot, monkeypatch):
    engine, sequence = joining(backend()), np.arange(3, 30, dtype=np.int32)
    taken = []
    load = FileWorkerEngine.receive_weights

    def counted(self, update_info) -> None:
        load(self, update_info)
        taken.append(update_info)
        if len(taken) == 2:  # of several: the layers that it cut through are half there
            engine._joined._channel.close()

    monkeypatch.setattr(FileWorkerEngine, "receive_weights", counted)
    with ends() as (publisher, receiver, news):
        receiver.introduce(engine.describe())
        publish(publisher, snapshot(1))
        with pytest.raises(GroupBrokenError):
            take(engine, receiver, news, 1)
        with pytest.raises(RunError, match="unfinished version 1"):
            engine.score(sequence)
        receiver.on_group_broken(engine.epoch)
        take(engine, receiver, news, 1)
    other = backend()
    update_engine(other, snapshot(1))
    assert np.abs(engine.score(sequence) - other.score(sequence)).max() < TOLERANCE


# --- what a GPU is asked for is there, by name --------------------------------------------------------------------------------


def parameters(function: object) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_the_methods_that_are_called_by_name_are_methods_of_vllms_worker():
    for name in (joined_transfer.INIT, joined_transfer.START, joined_transfer.UPDATE, joined_transfer.FINISH, "compute_weight_checksums"):
        assert callable(getattr(Worker, name)), name
    assert "init_info" in parameters(Worker.init_weight_transfer_engine)
    assert "update_info" in parameters(Worker.update_weights)
    assert not parameters(Worker.start_weight_update) - {"self"}


def test_every_process_of_vllm_is_told_of_the_transfer():
    from importlib.metadata import entry_points

    from rlcore_plugin_vllm.vllm_registration import register
    from vllm.plugins import DEFAULT_PLUGINS_GROUP

    [told] = entry_points(group=DEFAULT_PLUGINS_GROUP, name="rlcore")
    assert told.load() is register
    register()
    register()
    with pytest.raises(ValueError, match="already registered"):
        WeightTransferEngineFactory.register_engine("rlcore", FileWorkerEngine)


def test_what_the_trainers_side_says_of_itself_is_what_vllm_takes():
    assert {"rank", "packed", "packed_buffer_size_bytes"} <= {field.name for field in fields(IPCTrainerInitInfo)}
    known = {field.name for field in fields(NCCLTrainerInitInfo)}
    assert {"rank", "master_address", "master_port", "world_size", "packed", "packed_buffer_size_bytes"} <= known
    assert (IPCTrainerInitInfo.backend, NCCLTrainerInitInfo.backend) == ("ipc", "nccl")
    assert {"init_info", "client", "source"} <= parameters(WeightTransferTrainerFactory.trainer_init)


def test_the_group_is_a_client_as_vllm_wants_it():
    from rlcore_plugin_vllm.engine_group import EngineGroup

    names = [joined_transfer.INIT, joined_transfer.START, joined_transfer.UPDATE, joined_transfer.FINISH]
    for name in names:
        assert parameters(getattr(EngineGroup, name)) == parameters(getattr(VLLMWeightSyncClient, name)), name


def test_the_engine_sleeps_and_wakes_by_these_names():
    assert {"level"} <= parameters(LLMEngine.sleep)
    assert {"tags"} <= parameters(LLMEngine.wake_up)
    from vllm.v1.executor.abstract import SLEEP_TAGS

    assert {"weights", "kv_cache"} == SLEEP_TAGS


def test_a_manifest_of_bfloat16_reaches_vllm_as_bfloat16():
    from rlcore_plugin_vllm.trainer_senders import host_tensors
    from rlcore_plugin_workers.background import HostMemory, HostVersion

    from rlcore.api import Tensor
    from rlcore.api.weights import HostLayout
    from rlcore.testing import HostSource

    values = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    tensor = Tensor(dtype="bfloat16", shape=(2, 3), data=values.view(torch.uint16).numpy())
    sent = Snapshot.of(1, {"a": tensor})
    layout = HostLayout(version=1, manifest=sent.manifest(), probe=None)
    memory = HostMemory(layout.size)
    layout.fill(HostSource(sent.tensors), memory.flat, 1 << 20)
    [(name, got)] = host_tensors(HostVersion(layout, memory))
    assert name == "a"
    assert torch.equal(got, values)
