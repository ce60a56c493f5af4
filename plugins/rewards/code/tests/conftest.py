"""A sandbox that answers from a script, and a reward that uses it; a mark by which jails are found among all processes."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rlcore_plugin_code.options import CodeOptions
from rlcore_plugin_code.reward import CodeReward

from rlcore.testing import FakeSandbox
from tests.levels import LEVELS, need

sys.path.insert(0, str(Path(__file__).parent))  # for kit_styles, whatever pytest's import mode
from kit_styles import Bench


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Judges programs at the best level that there is."""
    with closing(Bench("auto")) as made:
        yield made


@pytest.fixture(scope="module", params=LEVELS)
def level_bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Judges programs at each level."""
    need(request.param)
    with closing(Bench(request.param)) as made:
        yield made


@pytest.fixture
def scripted(monkeypatch):
    """``scripted(answer, **options)``: an opened reward, and its sandbox."""

    def make(answer, **options):
        sandbox = FakeSandbox(answer=answer)
        monkeypatch.setattr("rlcore_plugin_code.reward.open_sandbox", lambda _: sandbox)
        reward = CodeReward(CodeOptions(**options))
        reward.open()
        return reward, sandbox

    return make


class Mark:
    """A folder that jails are told to show, so that their command lines name it: they are found wherever in the process tree they end up,
    orphans too, and no other test's are. Level namespaces: bubblewrap, whose end is the end of all inside; landlock: zygote and program."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def processes(self) -> set[int]:
        """Jails that run now, wherever on this machine."""
        found = set()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if self.folder.encode() in (folder / "cmdline").read_bytes():
                        found.add(int(folder.name))
        return found


@pytest.fixture
def mark() -> Iterator[Mark]:
    # Not below /tmp, which jails hide.
    with tempfile.TemporaryDirectory(prefix="rlcore-test-mark-", dir="/var/tmp") as folder:
        yield Mark(folder)


def children(pid: int) -> list[int]:
    """Processes that this one started and that still run."""
    with contextlib.suppress(OSError):
        return [int(word) for thread in Path(f"/proc/{pid}/task").iterdir() for word in (thread / "children").read_text().split()]
    return []


@pytest.fixture(name="children", scope="session")
def _children() -> Callable[[int], list[int]]:
    return children
