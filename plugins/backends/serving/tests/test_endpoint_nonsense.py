"""Servers that answer what makes no sense, or take orders and do nothing: each is lost in time, and nothing waits for ever. Fakes."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest
from fake_servers import _SGLANG, _VLLM, weights
from rlcore_plugin_serving.version_folder import VersionFolders

from rlcore.api import ConfigError, RunError
from rlcore.testing import update_engine

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("said", [{"hello": 1}, [], 5, {"choices": [{"token_ids": None}]}, {"choices": [1, 2]}], ids=str)
def test_a_message_of_another_shape_costs_the_server(server, backend, ask, monkeypatch, said):
    engine = backend(server(), silence_seconds=2.0)
    usual = _VLLM["/inference/v1/generate"]
    monkeypatch.setitem(
        _VLLM, "/inference/v1/generate", lambda fake, body: (lambda: iter([said])) if body.get("stream") else usual(fake, body)
    )
    engine.submit(ask(1))
    with pytest.raises(RunError, match="it sent a message that is not part of an answer"):
        engine.poll(30.0)


def test_an_update_does_not_wait_for_a_server_that_drops_nothing(server, backend, ask, monkeypatch):
    engine = backend(server(kind="sglang", silent_after=3), silence_seconds=1.0)
    monkeypatch.setitem(_SGLANG, "/abort_request", lambda fake, body: ({}, 200))
    engine.submit(ask(2))
    time.sleep(0.3)
    with pytest.raises(RunError, match="it did not drop an answer for 1 s"):
        update_engine(engine, weights(1))


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_server_that_answers_with_no_token_is_not_met(kind, server, backend):
    with pytest.raises(ConfigError, match=r"no server .* was healthy within 2 s"):
        backend(server(kind=kind, silent_after=0), start_seconds=2.0)


def test_who_sweeps_finds_no_folder_that_is_not_locked_yet(tmp_path: Path, monkeypatch):
    """Another producer looks at the shared folder just before this one has its lock."""
    first, model = VersionFolders(tmp_path, str(tmp_path), tmp_path), tmp_path
    lock = fcntl.flock

    def late(file, how):
        monkeypatch.setattr(fcntl, "flock", lock)
        VersionFolders(tmp_path, str(tmp_path), model).close()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    first.close()
    second = VersionFolders(tmp_path, str(tmp_path), model)
    assert second._root.is_dir()
    second.close()
