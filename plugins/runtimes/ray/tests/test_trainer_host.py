"""A trainer rank as an actor, without Ray: where the ranks can meet, and who hears of a transfer that failed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import ray
from rlcore_plugin_ray.trainer_host import TrainerHost

from rlcore.api import ConfigError, Snapshot, WeightsError
from rlcore.api.runtime import Shipment
from rlcore.testing import RunTester, make_plan

SECONDS = 20.0


def host() -> TrainerHost:
    return TrainerHost(None, 0)  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_refused_by_its_number() -> None:
    with socket.create_server((ray.util.get_node_ip_address(), 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--master_port {port} cannot be used on .* \(Address already in use\); type another"):
            host().rendezvous(port)
    assert host().rendezvous(port).endswith(f":{port}")


def test_where_none_is_asked_for_a_free_one_is_taken() -> None:
    address, _, port = host().rendezvous(None).rpartition(":")
    assert address == f"tcp://{ray.util.get_node_ip_address()}"
    assert int(port) > 0


@pytest.fixture
def rank_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainerHost]:
    """Rank 0 of a run on fakes, whose weights travel through shared memory."""
    tester = RunTester(tmp_path).with_fakes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray, "get_gpu_ids", list)
    with tester.plugins:
        made = TrainerHost(Shipment.of(make_plan(tester.fake_run(), runtime="ray", transport="shared"), {}), 0)
        made.prepare(6, "")
        yield made
        made.close()


def test_a_transfer_that_fails_in_the_background_ends_its_life(rank_0: TrainerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may never publish again: without weights nobody makes what it would train on."""

    def broken(publisher: Any, snapshot: Snapshot) -> None:
        raise WeightsError(f"version {snapshot.version} went nowhere")

    ended: Future[str] = Future()

    def live() -> None:
        try:
            rank_0.lifetime()
        except WeightsError as error:
            ended.set_result(str(error))

    monkeypatch.setattr("rlcore.weights.shared.SharedPublisher._send", broken)
    threading.Thread(target=live, daemon=True).start()
    rank_0.start(None, None)
    assert ended.result(SECONDS) == "version 0 went nowhere"
