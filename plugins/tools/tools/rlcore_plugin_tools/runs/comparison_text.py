"""A comparison for a person: a table per section. Sections without a difference are left out and named at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlcore.api.commands import SteadyConsole, plain_console
from rlcore.api.runs import metric_of
from rlcore.api.settings import as_typed
from rlcore_plugin_tools.runs.aligned_table import say, show_rows
from rlcore_plugin_tools.runs.figures_text import bounded, clock, figure, signed

if TYPE_CHECKING:
    from rlcore_plugin_tools.runs.comparison import Comparison
    from rlcore_plugin_tools.runs.figures_compared import ComparedFigure, FigureOfGroup
    from rlcore_plugin_tools.runs.intervals import Interval
    from rlcore_plugin_tools.runs.origins_compared import Difference
    from rlcore_plugin_tools.runs.seed_groups import ComparedRun, SeedGroup

__all__ = ["show_comparison"]

_FINGERPRINT = 12
"""Characters of a hash that are shown: enough to tell two apart."""


def show_comparison(comparison: Comparison) -> None:
    """Print the comparison."""
    console, labels = plain_console(), [group.label for group in comparison.groups]
    show_rows(console, ("", "run", "state", "step", "seed", "time"), _run_rows(comparison.groups))
    sections: dict[str, Sequence[Difference]] = {
        "settings": comparison.settings,
        "versions": comparison.versions,
        "plugins": comparison.plugins,
        "data": comparison.data,
    }
    for title, found in sections.items():
        if found:
            say(console)
            rows = [(item.name, *(_value(title, value) for value in item.values)) for item in found]
            show_rows(console, (title, *labels), rows, repeated=1)
    _show_figures(console, "evaluations", labels, comparison.evaluations)
    _show_figures(console, "figures", labels, comparison.figures)
    same = [title for title, found in sections.items() if not found]
    if same:
        say(console, f"\nthe same in all: {', '.join(same)}")
    if not any(run.tasks for group in comparison.groups for run in group.runs):
        say(console, "\nno held-out task was evaluated")


def _run_rows(groups: Sequence[SeedGroup]) -> list[tuple[str, ...]]:
    return [(group.label, *_about(run)) for group in groups for run in group.runs]


def _about(run: ComparedRun) -> tuple[str, ...]:
    planned = run.record.planned_steps
    step = "–" if run.step is None else str(run.step) if planned is None else f"{run.step}/{planned}"
    seed = "–" if run.seed is None else str(run.seed)
    return str(run.record.root), run.state, step, seed, clock(run.seconds)


def _value(title: str, value: Any) -> str:
    if value is None:
        return "–"
    return str(value)[:_FINGERPRINT] if title == "data" else as_typed(value)


def _show_figures(console: SteadyConsole, title: str, labels: Sequence[str], found: Sequence[ComparedFigure]) -> None:
    if not found:
        return
    say(console)
    headings = (title, "at", "unit", *labels, *(f"{label} - {labels[0]}" for label in labels[1:]))
    show_rows(console, headings, [_figure_row(one) for one in found], repeated=3)


def _figure_row(one: ComparedFigure) -> tuple[str, ...]:
    described = metric_of(one.metric)
    unit = described.unit if described else {"seconds an update": "s", "tokens a second": "tokens/s"}.get(one.metric, "")
    differences = (_difference(one, place, found) for place, found in enumerate(one.differences))
    return one.metric, one.at, unit, *(_with_bounds(figure_of, one.at) for figure_of in one.figures), *differences


def _with_bounds(found: FigureOfGroup, at: str) -> str:
    if found.interval is None:
        return "–"
    words = [figure(found.interval.mean), bounded(found.interval.low, found.interval.high)]
    if found.over == "seeds":
        words.append(f"n={found.interval.count}")
    if at in ("last", "best"):
        words.append("@" + ",".join(map(str, sorted(set(found.steps)))))
    return " ".join(filter(None, words))


def _difference(one: ComparedFigure, place: int, found: Interval | None) -> str:
    if found is None:
        return "–"
    words = [signed(found.mean), bounded(found.low, found.high, sign=True)]
    overlap = one.overlap(place)
    said = [] if overlap is None else ["intervals overlap" if overlap else "intervals apart"]
    pair = one.paired[place] if place < len(one.paired) else None
    if pair is not None:
        bounds = bounded(pair.difference.low, pair.difference.high, sign=True)
        said.append(f"paired {signed(pair.difference.mean)} {bounds} over {pair.difference.count} prompts, {pair.differing} differ")
    return "; ".join([" ".join(filter(None, words)), *said])
