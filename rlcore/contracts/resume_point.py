"""The point from which a run resumes. The driver reads it once, and every worker receives it with the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ResumePoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """A complete and verified checkpoint of the run in the folder ``run``.

    ``checkpoint`` is its folder, ``step`` its policy version, and ``state`` the content of its ``state.json``.
    """

    run: Path
    checkpoint: Path
    step: int
    state: Mapping[str, Any]
