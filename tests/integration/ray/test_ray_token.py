"""A head that was started by hand where a token is at home: whoever has it joins, whoever has not is told."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from rlcore.testing.training.rank_processes import free_rendezvous
from tests.integration.ray.faults import processes_of, until

pytestmark = pytest.mark.nightly


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With a token."""
    token = tmp_path / "home/.ray/auth_token"
    token.parent.mkdir(parents=True)
    token.write_text(secrets.token_hex(32))
    return tmp_path / "home"


@pytest.fixture
def head(ray_dir: Path, home: Path) -> Iterator[str]:
    """Its address."""
    port = free_rendezvous().rpartition(":")[2]
    ray = Path(sys.executable).parent / "ray"
    command = [str(ray), "start", "--head", "--port", port, "--num-cpus", "4", "--temp-dir", str(ray_dir), "--disable-usage-stats"]
    environment = {**os.environ, "HOME": str(home)}
    environment.pop("RAY_AUTH_MODE", None)
    try:
        subprocess.run([*command, "--include-dashboard", "false"], env=environment, check=True, capture_output=True, timeout=60)
        yield f"127.0.0.1:{port}"
    finally:
        for process in processes_of(ray_dir):
            os.kill(process.pid, signal.SIGKILL)
        until(lambda: not processes_of(ray_dir), "the head to end", 60.0)


def test_the_token_at_home_is_sent(head: str, home: Path, tester: RunTester) -> None:
    command = ("train", tester.fake_run(), "--master_address", head, "-i", "2")
    tester.run(*command, env={"HOME": str(home)}).assert_ok()
    tester.run(*command, env={"HOME": str(tester.folder)}).assert_refused("asks for a token")
