"""Makes the module that plays episodes with a fake engine, which these tests share, importable by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _begins() -> None:
    """Processes of other tests, which share this one's process, are not counted as left behind."""
    from episode_player import EARLIER, descendants

    EARLIER.clear()
    EARLIER.update(child.pid for child in descendants())
