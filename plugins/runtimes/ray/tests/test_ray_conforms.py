"""The Ray runtime keeps what every runtime promises: on actors that are objects of this process, and on a cluster of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rlcore.testing import RuntimeSuite
from tests.ray_in_one_process import ray_in_one_process


class TestRayInOneProcess(RuntimeSuite):
    runtime = "ray"
    settings: ClassVar[Mapping[str, Any]] = {"inference": {"num_inferencer": 2}}

    @pytest.fixture(autouse=True)
    def stage(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with ray_in_one_process(monkeypatch):
            yield


@pytest.mark.full
class TestRayOnACluster(RuntimeSuite):
    runtime = "ray"

    @pytest.fixture(autouse=True)
    def folder(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as short:  # Ray writes a little longer than it lives
            type(self).settings = {"inference": {"num_inferencer": 2}, "run": {"ray_dir": str(Path(short) / "r")}}
            yield

    @pytest.mark.nightly  # three clusters; in one process it is checked each time
    def test_a_run_that_goes_on_is_the_run_that_was_not_left(self, tmp_path: Path) -> None:
        super().test_a_run_that_goes_on_is_the_run_that_was_not_left(tmp_path)
