"""Makes the module that plays episodes with a fake engine importable by name."""

import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "program" / "tests"
sys.path[:0] = [str(Path(__file__).parent), str(PROGRAM)]


@pytest.fixture(autouse=True)
def _begins() -> None:
    """Processes of other tests, which share this one's process, are not counted as left behind."""
    from episode_player import EARLIER, descendants

    EARLIER.clear()
    EARLIER.update(child.pid for child in descendants())
