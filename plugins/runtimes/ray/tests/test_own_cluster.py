"""A cluster of a run's own: what the process that holds it answers, how it ends, and when a run starts one. On stubs of that process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from rlcore_plugin_ray import cluster_address, own_cluster
from rlcore_plugin_ray.cluster_address import ray_head

from rlcore.api import ConfigError
from rlcore.api.runtime import RunSection

ANSWERS = "import json, os, sys; print(json.dumps({'address': f'{os.getpgid(0)}:{os.getpid()}', 'mode': 'token'}), flush=True); "


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(own_cluster, "_END_SECONDS", 0.2)
    return monkeypatch


@pytest.mark.parametrize("stubborn", [False, True])
def test_its_process_is_alone_in_its_group_and_ends_with_the_context(hold: pytest.MonkeyPatch, tmp_path: Path, stubborn: bool) -> None:
    """By itself once its standard input ends, or else by force."""
    done = tmp_path / "done"
    then = "import time; time.sleep(600)" if stubborn else f"sys.stdin.read(); open({str(done)!r}, 'w')"
    if not stubborn:
        hold.setattr(own_cluster, "_END_SECONDS", 60.0)
    hold.setattr(own_cluster, "_HOLD", ANSWERS + then)
    with own_cluster.own_cluster(None) as (address, mode):
        group, pid = map(int, address.split(":"))
        assert group == pid != os.getpgid(0)
        assert mode == "token"
        assert not done.exists()
    assert done.exists() is not stubborn
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('print(\'{"error": "no space left"}\', flush=True)', "no space left"),
        ("import os, sys; sys.stderr.write('first\\ncheck failed: plasma\\n'); sys.stderr.flush(); os._exit(1)", "check failed: plasma"),
        ("import os; os._exit(1)", "its process ended"),
    ],
)
def test_a_cluster_that_does_not_start_is_one_sentence(hold: pytest.MonkeyPatch, body: str, said: str) -> None:
    hold.setattr(own_cluster, "_HOLD", body)
    with pytest.raises(ConfigError, match=f"^a Ray cluster cannot be started here: {said}; to use another folder"):
        own_cluster.own_cluster(None).__enter__()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """The folders of the clusters that were started; Ray is not imported."""
    folders: list[Path | None] = []

    @contextmanager
    def start(folder: Path | None) -> Iterator[tuple[str, str]]:
        folders.append(folder)
        yield "here:1", "token"

    monkeypatch.setattr(cluster_address, "own_cluster", start)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop("RAY_AUTH_MODE", None)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    return folders


def test_the_driver_takes_over_the_mode_of_its_cluster_before_it_imports_ray(started: list[Path | None], tmp_path: Path) -> None:
    with ray_head(RunSection()) as address:
        assert address == "here:1"
        assert os.environ["RAY_AUTH_MODE"] == "token"
    assert started == [None]


def test_ctrl_c_while_the_cluster_starts_ends_it(started: list[Path | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is there, and not before: half of one could not be ended."""
    states: list[str] = []

    @contextmanager
    def slow(folder: Path | None) -> Iterator[tuple[str, None]]:
        os.kill(os.getpid(), signal.SIGINT)
        states.append("started")
        try:
            yield "here:1", None
        finally:
            states.append("ended")

    monkeypatch.setattr(cluster_address, "own_cluster", slow)
    with pytest.raises(KeyboardInterrupt):
        ray_head(RunSection()).__enter__()
    assert states == ["started", "ended"]


def test_a_program_that_has_imported_ray_starts_the_cluster_itself(started: list[Path | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the mode is set, which its Ray has read as well."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    with ray_head(RunSection()) as address:
        assert address == "local"
    assert started == []
    os.environ["RAY_AUTH_MODE"] = "token"
    with ray_head(RunSection()) as address:
        assert address == "here:1"


def test_a_program_that_is_connected_stays_so(started: list[Path | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    with ray_head(RunSection()) as address:
        assert address is None
    assert started == []
