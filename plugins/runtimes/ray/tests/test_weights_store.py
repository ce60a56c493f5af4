"""The object store's publisher on stubs of Ray: who hears that a version could not be stored."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import ObjectStoreFullError
from rlcore_plugin_ray import weights_store
from rlcore_plugin_ray.weights_store import StoreTransfer

from rlcore.api import Snapshot, WeightsError
from rlcore.testing import publish

SECONDS = 20.0


def test_a_version_that_cannot_be_stored_is_told_at_once_and_by_the_next_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(value: Any) -> None:
        raise ObjectStoreFullError("no room")

    monkeypatch.setattr(weights_store, "make_rendezvous", lambda: None)
    monkeypatch.setattr(weights_store.ray, "put", full)
    monkeypatch.setattr(weights_store.ray, "kill", lambda board: None)
    failed: Future[str] = Future()
    publisher = StoreTransfer().publisher(deadline=SECONDS, bucket_bytes=1 << 20, on_failure=lambda error: failed.set_result(str(error)))
    publish(publisher, Snapshot.of(3, {}))
    assert failed.result(SECONDS).startswith("version 3 could not be sent: ObjectStoreFullError: ")
    with pytest.raises(WeightsError, match="version 3 could not be sent"):
        publish(publisher, Snapshot.of(4, {}))
    publisher.close()
