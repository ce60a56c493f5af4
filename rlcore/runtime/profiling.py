"""``--enable-profiling``: where the Python time of a role goes, as a file that ``python -m pstats`` and snakeviz open."""

from __future__ import annotations

import cProfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["profiled"]


@contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    """Profile the calling thread inside, and write ``path`` on leaving; nothing where it is None."""
    if path is None:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.dump_stats(path)
