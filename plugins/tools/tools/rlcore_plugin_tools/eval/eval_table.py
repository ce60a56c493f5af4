"""The tables that a person sees at the end of an evaluation: one row a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlcore.api import Outcome
from rlcore.api.commands import escape_control
from rlcore.api.runtime import TaskReport
from rlcore_plugin_tools.eval.evaluating import Evaluated
from rlcore_plugin_tools.runs.figures_text import figure

__all__ = ["show_evaluated"]


def show_evaluated(found: Evaluated, samples: int, console: Console, *, solved: float | None = None) -> None:
    """Print a table of accuracies with their 95 % intervals, one of outcomes and costs, then time and tokens. If a reward is neither 0 nor
    1, the mean reward is first. ``samples``: completions a prompt; ``solved``: the reward from which one is right, if it is known."""
    partial = any(row["reward"] not in (None, 0, 1) for row in found.rows)
    _show([_cells(report, found.prompts[report.task], samples, partial) for report in found.reports], console)
    if partial and solved is not None:
        _say(console, f"avg@{samples} counts an episode without an accuracy of its own as right from reward {solved:g} on (--solved)")
    _say(console, "")
    _show([_cost_cells(task, cost, found.outcomes[task]["episodes"]) for task, cost in found.costs.items()], console)
    for task, count in found.dropped.items():
        _say(console, f"{task}: {count} prompts were too long and are left out")
    for report in found.reports:
        if report.failed:
            _say(console, f"{report.task}: {_failure(report)}")
    rate = found.tokens / max(found.seconds, 1e-9)
    _say(console, f"{found.seconds:.1f} s, {found.tokens} tokens, {rate:.0f} tokens/s (loading: {found.load_seconds:.1f} s)")


def _show(rows: Sequence[Mapping[str, str]], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, justify="left" if name in ("task", "episodes") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    console.print(table)


def _say(console: Console, text: str) -> None:
    console.print(escape_control(text), markup=False, highlight=False, soft_wrap=True)


def _cells(report: TaskReport, prompts: int, samples: int, partial: bool) -> dict[str, str]:
    figures, own = report.figures(), f"eval/{report.task}"
    most = max((int(k) for name in figures if (k := name.removeprefix(f"{own}/pass@")).isdecimal()), default=samples)
    reward = {"reward": figure(figures.get(f"{own}/reward"))}
    cells = {"task": escape_control(report.task), "prompts": str(prompts), **(reward if partial else {})}
    cells[f"avg@{samples}"] = _interval(figures, own)
    if samples > 1:
        cells |= {name: _interval(figures, f"{own}/{name}") for name in (f"pass@{most}", f"maj@{most}")}
    cells |= reward
    for name, form in {"length": ".1f", "truncated": ".1%"}.items():
        cells[name] = format(figures[f"{own}/{name}"], form) if f"{own}/{name}" in figures else "–"
    return {**cells, "failed": str(report.failed)}


def _cost_cells(task: str, cost: Mapping[str, Any], episodes: Mapping[str, int]) -> dict[str, str]:
    seconds = cost["answer_seconds"] or {}
    cells = {"task": escape_control(task), "calls": str(cost["calls"]), "prompt tokens": str(cost["prompt_tokens"])}
    cells["sampled tokens"] = str(cost["sampled_tokens"])
    for name, label in {"mean": "seconds: mean", "p50": "p50", "max": "max"}.items():
        cells[label] = figure(seconds.get(name))
    return {**cells, "episodes": ", ".join(f"{count} {end}" for end, count in episodes.items())}


def _interval(figures: Mapping[str, float], name: str) -> str:
    return f"{figures[name]:.3f} [{figures[f'{name}/low']:.3f}, {figures[f'{name}/high']:.3f}]" if name in figures else "–"


def _failure(report: TaskReport) -> str:
    """Return how many completions have no verdict, and the reason of the first."""
    first = next(row for row in report.rows if row["masked"] or not Outcome(row["outcome"]).judged)
    return f"no verdict on {report.failed} of {len(report.rows)} completions; the first: {first['outcome']}, {first['reason']}"
