"""From where a run goes on: what its driver reads once and every worker is told with the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ResumePoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """A checkpoint of the run in the folder ``run``, whole and verified: its folder, its step (the policy version that it holds), and what
    its ``state.json`` says."""

    run: Path
    checkpoint: Path
    step: int
    state: Mapping[str, Any]
