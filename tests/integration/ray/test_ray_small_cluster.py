"""The cluster of these tests itself: it needs nothing of the machine, shares nothing with another, and ends whatever fails at its start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.ray.faults import processes_of
from tests.integration.ray.small_cluster import is_ours, short_folder, small_cluster


def children() -> set[str]:
    """The children of this process, those included that have ended and are not reaped."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@pytest.mark.parametrize("place", ["ray._private.utils.write_ray_address", "ray._private.node.Node.start_ray_processes"])
def test_a_start_that_fails_leaves_no_process(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """The first fails once the head is there; the second leaves a head half-way, which Ray itself has lost sight of."""

    def refused(*args: object, **named: object) -> None:
        started.append(len(processes_of(folder)))
        raise OSError("planted")

    monkeypatch.setattr(place, refused)
    before, started = children(), list[int]()
    with short_folder() as folder:
        with pytest.raises(OSError, match="planted"), small_cluster(folder):
            raise AssertionError("the start must fail")
        assert started[0] > 0, "nothing had been started yet"
        assert not processes_of(folder)
    assert children() <= before


def spoilt(folder: Path) -> None:
    """A test that fails while a node is there beside the head."""
    with small_cluster(folder) as cluster:
        cluster.add(1)
        raise OSError("planted")


def test_a_test_that_fails_leaves_no_process_and_the_folder_that_all_rays_share_is_not_touched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a fresh machine there is no such folder; on another it holds the address of somebody's cluster."""
    before, address = children(), tmp_path / "ray/ray_current_cluster"
    address.parent.mkdir()
    address.write_text("10.0.0.1:6379")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with short_folder() as folder:
        with pytest.raises(OSError, match="planted"):
            spoilt(folder)
        assert not processes_of(folder)
    assert children() <= before
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [address]
    assert address.read_text() == "10.0.0.1:6379"
    assert os.environ["RAY_TMPDIR"] == str(tmp_path)


def test_what_is_left_of_rlcore_is_told_by_its_command_and_not_by_the_name_of_the_checkout() -> None:
    ray = "/home/me/rlcore/.venv/bin/python -u /home/me/rlcore/.venv/lib/ray/_private/monitor.py --logs-dir=/tmp/ray"
    worker = "/usr/bin/python3 -P -c import json, sys; from rlcore.rewards.worker import main; main()"
    assert [is_ours(title) for title in (ray, worker, "ray::GroupStore.read", "ray::IDLE")] == [False, True, True, False]
