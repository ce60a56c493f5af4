"""A run in which nothing could be trained ends with an error that says why, not with "done"."""

from __future__ import annotations

from rlcore.config import RunConfig
from rlcore.errors import StarvationError
from rlcore.schedule import Status

__all__ = ["refuse_an_empty_run"]


def refuse_an_empty_run(status: Status, config: RunConfig) -> None:
    """Raise StarvationError where every prompt of every episode was filtered or failed, naming the setting that took them out."""
    if status.trained:
        return
    filtered = f"{status.filtered} filtered by filter_range {config.algorithm.filter_range}" if status.filtered else ""
    failed = f"{status.failed} failed (failures.jsonl in the run folder says why)" if status.failed else ""
    raise StarvationError(
        f"nothing was trained: of {status.filtered + status.failed} prompts, {' and '.join(filter(None, (filtered, failed)))}; "
        "widen --filter-range, raise -g, or try easier prompts"
    )
