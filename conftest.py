"""What holds for every test of the repository: a test without a marker is a fast one; runs on a Ray cluster are in one test process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("hypothesis"):  # an engine's environment has none, and its tests need none
    from hypothesis import settings

    settings.register_profile("rlcore", deadline=None)  # no test asserts wall-clock time
    settings.load_profile("rlcore")

# Ray gives its workers niceness 15: beside other tests they get a thirtieth of a core, and their deadlines pass.
os.environ.setdefault("RAY_worker_niceness", "0")

gc.disable()  # until everything is collected: 13,000 tests and what they import stay, and to look through them costs a second each time

HAS_PROGRAMS = find_spec("rlcore_plugin_processes") is not None and os.environ.get("RLCORE_TEST_DEVICE", "cpu") == "cpu"
"""An engine's environment may have none; on a card programs start as users start them, since CUDA does not outlive a fork."""

pytest_plugins = ("tests.groups.plugin",)

CLUSTER = "tests/integration/ray/"
"""Whole runs on a Ray cluster: one after the other, for each takes both cores by itself."""
FIRST = (CLUSTER, "tests/integration/test_reward_ray.py", "tests/integration/test_weight_transports.py")
"""What takes longest, so that no process of the tests is alone with it at the end."""


def pytest_sessionstart() -> None:
    """A program run as root can replace /dev/null by a file: then sandboxes and children fail in ways that do not name it."""
    if not Path(os.devnull).is_char_device():
        pytest.exit(f"{os.devnull} is not a device on this machine; type: rm -f /dev/null && mknod -m 666 /dev/null c 1 3", returncode=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(name) for name in ("fast", "full", "nightly")):
            item.add_marker(pytest.mark.fast)
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    if "tests.warm_programs" in sys.modules:
        for server in sys.modules["tests.warm_programs"].SERVERS.values():
            server.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Programs that a test starts are forks of a process that has imported what they need, unless it is marked ``interpreter``."""
    if item.get_closest_marker("interpreter") or not HAS_PROGRAMS:
        return (yield)
    from tests.warm_programs import warm_programs

    with warm_programs():
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """With ``--dist loadfile`` a worker is handed one file after another; the runs on a cluster count as one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadFiles(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return CLUSTER if nodeid.startswith(CLUSTER) else str(super()._split_scope(nodeid))

    return LoadFiles(config, log)
