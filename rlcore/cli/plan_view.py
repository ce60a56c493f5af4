"""Print a plan as plain text or JSON: the run, the settings that differ from the core's defaults and why, and missing items."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rlcore.config import Plan
from rlcore.config.layers import as_typed, get_path
from rlcore.config.resolve import STALENESS
from rlcore.contracts.specs import LABELS, PluginKind
from rlcore.host.terminal_text import escape_control

__all__ = ["plan_json", "show_plan"]


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return ``{"config", "origins": {path: {layer, detail}}, "notes", "missing": [{what, command}], "reproducible": {level, why},
    "max_staleness": {value, why, correction}, "resume": {run, checkpoint, step}, "bad_rows": {data set: {reason: count}}}``.

    ``why`` is "" if somebody set the value. ``resume`` is null for a new run. JSON has no infinite or NaN numbers: they become the text
    "inf", "-inf" or "nan".
    """
    origin, path = plan.origins[STALENESS], "algorithm.mismatch_correction"
    why = origin.detail.removeprefix("auto: ") if origin.layer == "auto" else ""
    point = plan.resume
    return {
        "resume": {"run": str(point.run), "checkpoint": str(point.checkpoint), "step": point.step} if point else None,
        "config": _finite(plan.config.plain()),
        "origins": {path: {"layer": origin.layer, "detail": origin.detail} for path, origin in plan.origins.items()},
        "notes": list(plan.notes),
        "missing": [{"what": item.what, "command": item.command} for item in plan.missing],
        "bad_rows": {name: dict(reasons) for name, reasons in plan.bad_rows.items()},
        "reproducible": asdict(plan.reproducible),
        "max_staleness": {"value": get_path(plan.config, STALENESS), "why": why, "correction": get_path(plan.config, path)},
    }


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def show_plan(plan: Plan) -> None:
    """Print the plan."""
    print("plan (nothing was started)\n")
    _print_rows(list(_plugins(plan)))
    if settings := list(_settings(plan)):
        print(f"\nsettings that differ from {'those of the run so far' if plan.resume else 'the defaults of the core'}")
        _print_rows(settings)
    print("\nnotes")
    for note in plan.notes:
        print(f"  {escape_control(note)}")
    if plan.missing:
        print("\nmissing: train would refuse to start")
        _print_rows([(item.what, item.command) for item in plan.missing])
    else:
        print("\nnothing is missing (plugins were found, not imported): type the same command without --dry-run to train")


def _print_rows(rows: Sequence[tuple[str, ...]]) -> None:
    rows = [tuple(map(escape_control, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  " + "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _plugins(plan: Plan) -> Iterator[tuple[str, str, str]]:
    for kind, name in plan.plugins():
        label = LABELS[kind] if kind in (PluginKind.ALGORITHM, PluginKind.DATA, PluginKind.FORMAT) else str(kind)
        if name == "auto":
            yield label, "auto" if kind is PluginKind.TRANSFER else "the recipe's", "not installed"
        elif plan.registry.has(kind, name):
            owner, version = plan.registry.owner(kind, name), plan.registry.version(kind, name)
            yield label, name, f"{owner} {version}".rstrip()
        else:
            yield label, name, "not installed"


def _settings(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield path, value and origin of each setting that is not a default: first those that somebody typed, then those of the recipe."""
    own = str(plan.resume.run / "run.toml") if plan.resume else ""  # all settings of a resumed run
    for path, origin in sorted(plan.origins.items(), key=lambda item: item[1].layer == "recipe"):
        listed = path.endswith(".name") and not path.endswith(".algorithm.name")  # among the plugins, or in the path
        if origin.detail != own and origin.layer not in ("core", "auto") and not listed and path not in ("rewards", "algorithm.name"):
            yield plan.named(path), as_typed(get_path(plan.config, path)), str(origin)
