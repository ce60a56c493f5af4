"""The values in a help text: those of the run that the words on the line describe, each with its origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from rlcore.config.layers import as_typed, get_path
from rlcore.config.plan import Plan, plan_run
from rlcore.contracts.errors import RlcoreError

if TYPE_CHECKING:
    from rlcore.registry.plugin_registry import Registry

__all__ = ["planned_values"]

_LONGEST = 40
"""Characters of a value, or of its origin."""


def planned_values(
    files: Sequence[Path], flags: Mapping[str, Any], registry: Registry, names: Mapping[str, Any], reads: Callable[[str], bool]
) -> dict[str, str]:
    """Return "value, origin" by path for each setting that is not a default. Return {} if the words cannot be planned."""
    plan: Plan | None = None
    with suppress(RlcoreError, OSError):
        plan = plan_run(files, {**names, **flags}, registry, require=False, reads=reads)
    if plan is None:
        return {}
    origins = {path: origin for path, origin in plan.origins.items() if path not in names or path in flags}
    shown = {path: _origin(str(origin)) for path, origin in origins.items() if origin.layer != "core"}
    return {path: f"{_cut(_value(get_path(plan.config, path)))}, {origin}" for path, origin in shown.items()}


def _value(value: Any) -> str:
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if items and all(isinstance(item, BaseModel) for item in items):  # data sets by their paths, rewards by their names
        return " ".join(str(getattr(item, "path", "") or getattr(item, "name", "")) for item in items)
    return "none" if value in (None, (), [], {}, "") else as_typed(value)


def _origin(detail: str) -> str:
    """Return the origin without the reason of a derived value, which ``rlcore show config`` prints."""
    short = "auto" if detail.startswith("auto: ") else detail
    return short if len(short) <= _LONGEST else f"…{short[1 - _LONGEST :]}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
