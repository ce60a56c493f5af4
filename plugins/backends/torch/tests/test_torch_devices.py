"""Which device a rank takes and which random state it keeps, on machines that are made up: none of this computes on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rlcore_plugin_torch.loading import pick_device
from rlcore_plugin_torch.random_state import random_state, restore_random

from rlcore.api import ConfigError, RunError


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_ranks_take_turns_and_a_named_device_is_taken() -> None:
    taken = {(name, rank): str(pick_device(name, rank)) for name in ("auto", "cuda", "cuda:1", "cpu") for rank in (0, 1, 2)}
    assert [taken["auto", rank] for rank in range(3)] == [taken["cuda", rank] for rank in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert {taken["cuda:1", rank] for rank in range(3)} == {"cuda:1"}
    assert {taken["cpu", rank] for rank in range(3)} == {"cpu"}


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["cuda:2", "cuda:x"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"training.device '{name}': torch finds 2 CUDA devices here, the last is cuda:1"):
        pick_device(name)


def test_only_the_state_of_the_own_device_is_kept_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    device, states, restored = torch.device("cuda", 1), {1: torch.tensor([7])}, []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda asked: states[asked.index])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, asked: restored.append((int(state), asked)))
    state = random_state(device)
    noise = torch.rand(3)
    restore_random(state, device)
    assert torch.equal(torch.rand(3), noise)
    assert restored == [(7, device)]
    restore_random(state, torch.device("cpu"))
    assert len(restored) == 1
    assert random_state(torch.device("cpu"))["cuda"] is None


def test_a_random_state_of_the_older_format_is_refused_on_cuda_and_read_on_a_cpu() -> None:
    torch.manual_seed(5)
    state = {"cpu": torch.get_rng_state(), "cuda": [torch.get_rng_state()]}
    noise = torch.rand(3)
    restore_random(state, torch.device("cpu"))
    assert torch.equal(torch.rand(3), noise)
    with pytest.raises(RunError, match="another version of the torch backend, which saved that of every CUDA device"):
        restore_random(state, torch.device("cuda", 0))


@pytest.mark.full
def test_on_a_device_a_warning_of_an_order_that_is_not_fixed_fails_no_test(tmp_path: Path) -> None:
    """``put_`` has no fixed order on a CPU either; every other warning stays an error."""
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_warnings.py").write_text(
        "import warnings\nimport torch\n"
        "def test_order():\n    torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))\n"
        "def test_other():\n    warnings.warn('something else')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "RLCORE_TEST_DEVICE": "cuda", "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "FAILED test_warnings.py::test_other" in done.stdout
