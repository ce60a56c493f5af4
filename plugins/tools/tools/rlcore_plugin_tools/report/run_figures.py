"""Everything of a run except its rollouts, as plain data that the page draws. Any file except ``run.toml`` may be missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from rlcore.api import ConfigError
from rlcore_plugin_tools.report.distributions import plain_number
from rlcore_plugin_tools.run_record import RunRecord
from rlcore_plugin_tools.settings_compared import flat_settings

__all__ = ["run_figures", "tried"]

_Read = TypeVar("_Read")

_Rows = list[dict[str, Any]]
_MOST_FAILURES = 200
_OF_SUMMARY = ("train_seconds", "tokens_per_second", "remarks")
_OF_MANIFEST = ("rlcore", "python", "platform", "seed", "command", "data", "packages", "plugins", "resumes")


def tried(problems: list[str], read: Callable[[], _Read], otherwise: _Read) -> _Read:
    """Return the result of ``read``. If a file is damaged, return ``otherwise`` and add the error to ``problems``, so that the rest can be
    shown."""
    try:
        return read()
    except ConfigError as error:
        problems.append(str(error))
        return otherwise


def run_figures(record: RunRecord) -> dict[str, Any]:
    """Return the part of one run; its key ``problems`` lists errors about files that could not be read."""
    problems: list[str] = []
    summary = tried(problems, lambda: record.summary, None) or {}
    manifest = tried(problems, lambda: record.manifest, dict[str, Any]())
    updates = tried(problems, record.updates, _Rows())
    return {
        "name": record.root.resolve().name,
        "folder": str(record.root.resolve()),
        "state": tried(problems, lambda: record.state, "ended"),
        "last_written": _last_written(record.root / "metrics.jsonl"),
        "checkpoints": record.checkpoint_steps(),
        "config": flat_settings(record.config),
        "origins": dict(manifest.get("origins", {})),
        "summary": {key: summary[key] for key in _OF_SUMMARY if key in summary},
        "manifest": {key: manifest[key] for key in _OF_MANIFEST if key in manifest},
        "steps": [row.get("step") for row in updates],
        "series": _columns(updates),
        "evaluations": tried(problems, lambda: _evaluations(record.evaluations()), _Rows()),
        "times": _times(tried(problems, record.times, _Rows())),
        "failures": _last(tried(problems, record.failures, _Rows())),
        "reward_errors": _last(tried(problems, record.reward_errors, _Rows())),
        "problems": problems,
    }


def _last_written(path: Path) -> str | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(timespec="seconds")
    except FileNotFoundError:
        return None


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Return name -> one value per row. A column without any number is left out."""
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    columns = {name: [plain_number(row.get(name)) for row in rows] for name in names}
    return {name: column for name, column in columns.items() if any(value is not None for value in column)}


def _evaluations(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per step: lines of the same step are merged."""
    by_step: dict[int, dict[str, Any]] = {}
    for row in rows:
        by_step.setdefault(int(row["step"]), {}).update({name: plain_number(value) for name, value in row.items()})
    return list(by_step.values())


def _times(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return ``steps`` and ``roles``: role -> ``{"workers": n, "steps": {category: a value a step}, "total": {category: s}}``. The total is
    the one that the run wrote at its end, otherwise the sum over its steps."""
    steps: list[int] = []
    roles: dict[str, dict[str, Any]] = {}
    ends: dict[str, dict[str, float]] = {}
    for row in rows:
        sums = _by_role(row.get("workers", {}), roles)
        if row.get("total"):
            ends = sums
            continue
        steps.append(row.get("step", len(steps) + 1))
        for role, categories in sums.items():
            columns = roles[role]["steps"]
            for category, spent in categories.items():
                columns.setdefault(category, []).extend([0.0] * (len(steps) - 1 - len(columns.get(category, []))))
                columns[category].append(round(spent, 4))
    for role, told in roles.items():
        for column in told["steps"].values():
            column.extend([0.0] * (len(steps) - len(column)))
        sums_of_steps = {category: sum(column) for category, column in told["steps"].items()}
        told["total"] = {category: round(spent, 3) for category, spent in ends.get(role, sums_of_steps).items()}
        told["workers"] = len(told["workers"])
    return {"steps": steps, "roles": roles}


def _by_role(workers: Mapping[str, Mapping[str, float]], roles: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return seconds by role and category; ``producer-0``, ``producer-1`` … are one role."""
    sums: dict[str, dict[str, float]] = {}
    for worker, categories in workers.items():
        role = worker.rstrip("0123456789").rstrip("-") or worker
        roles.setdefault(role, {"workers": set(), "steps": {}})["workers"].add(worker)
        of_role = sums.setdefault(role, {})
        for category, spent in categories.items():
            of_role[category] = of_role.get(category, 0.0) + (plain_number(spent) or 0.0)
    return sums


def _last(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the newest rows, and the number of all."""
    return {"count": len(rows), "rows": rows[-_MOST_FAILURES:]}
