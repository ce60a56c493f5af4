"""Makes the module that processes of these tests run importable by name; on a GPU, sums are taken in one order."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
if os.environ.get("RLCORE_TEST_DEVICE", "cpu") != "cpu":
    # Tests of equal bits ask for it. Some sums of attention have no such order: torch warns of them, and the tests show whether it matters.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)


def pytest_configure(config: pytest.Config) -> None:
    """Those warnings are shown, although a warning is an error in this repository."""
    if torch.is_deterministic_algorithms_warn_only_enabled():
        config.addinivalue_line("filterwarnings", "default:.*determinis:UserWarning")
