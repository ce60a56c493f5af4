"""Who failed: an exception out of a plugin's code becomes one sentence that names the plugin; the original stays as its cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlcore.errors import RlcoreError, RunError

__all__ = ["blaming"]


@contextmanager
def blaming(who: str, doing: str) -> Iterator[None]:
    """Inside, anything but an rlcore error is raised as RunError: ``{who} failed while {doing}: …``."""
    try:
        yield
    except RlcoreError:
        raise
    except (Exception, SystemExit) as error:  # a plugin that exits must not end the run as if it were done
        raise RunError(f"{who} failed while {doing}: {type(error).__name__}: {error}") from error
