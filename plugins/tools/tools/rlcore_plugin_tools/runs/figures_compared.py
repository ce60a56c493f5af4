"""Figures of runs side by side: evaluations with their intervals, and means of the last updates.

A group of several seeds has the mean over its runs with its Student interval. A single run has the interval that it logged, which is over
prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlcore_plugin_tools.eval.costs import EPISODE_ENDS
from rlcore_plugin_tools.runs.intervals import Interval, difference_of_means, mean_interval
from rlcore_plugin_tools.runs.metric_lines import best_step, figure_at
from rlcore_plugin_tools.runs.paired_prompts import PairedPrompts, has_pairs, paired_prompts
from rlcore_plugin_tools.runs.seed_groups import ComparedRun, SeedGroup

__all__ = ["ComparedFigure", "FigureOfGroup", "evaluations_compared", "figures_compared"]

_LAST_UPDATES = 10
"""A final figure is the mean over so many updates, because the figures of one update are noisy."""

_FINAL = (
    "reward/mean",
    "reward/accuracy",
    "response_length/mean",
    "truncated",
    "entropy/sampled",
    "kl_old",
    "kl_reference",
    "ratio_outside",
    "grad_norm",
    "groups/zero_spread",
)
"""Figures that are compared unless metrics are named."""


@dataclass(frozen=True, slots=True)
class FigureOfGroup:
    """A figure of one group. ``interval`` None: the group has no such figure. ``steps``: one for each of its runs that has one; ``over``:
    the samples that the bounds are over, seeds or prompts."""

    interval: Interval | None
    steps: tuple[int, ...] = ()
    over: str = ""
    values: tuple[float, ...] = ()

    def as_json(self) -> dict[str, Any] | None:
        """Return plain data."""
        return {**self.interval.as_json(), "steps": list(self.steps), "over": self.over} if self.interval else None


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of all groups. ``figures``: one per group. ``differences``: each later group minus the first; ``paired``: the same, if both
    answered the same prompts."""

    metric: str
    at: str
    figures: tuple[FigureOfGroup, ...]
    differences: tuple[Interval | None, ...]
    paired: tuple[PairedPrompts | None, ...] = ()

    def overlap(self, place: int) -> bool | None:
        """Return whether the intervals of the first group and of a later one have a value in common; None without intervals."""
        first, other = self.figures[0].interval, self.figures[place + 1].interval
        return first.overlaps(other) if first is not None and other is not None else None

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "metric": self.metric,
            "at": self.at,
            "figures": [figure.as_json() for figure in self.figures],
            "differences": [found.as_json() if found else None for found in self.differences],
            "overlap": [self.overlap(place) for place in range(len(self.differences))],
            "paired": [found.as_json() if found else None for found in self.paired],
        }


def evaluations_compared(groups: Sequence[SeedGroup], metrics: Sequence[str]) -> list[ComparedFigure]:
    """Return the figures of each held-out task: at the last step at which all runs were evaluated, then at each run's own last and best
    step. ``metrics``: names of metrics.jsonl that replace accuracy, pass@k and maj@k of the greatest k, and failures, ends of episodes and
    costs of evaluations."""
    runs = [run for group in groups for run in group.runs]
    found = []
    for task in dict.fromkeys(task for run in runs for task in run.tasks):
        names = [name for name in metrics if name == f"eval/{task}" or name.startswith(f"eval/{task}/")]
        for name in names if metrics else [*_accuracies(task, runs), *_of_evaluations(task, runs)]:
            found += _at_three(groups, runs, name, task)
    return found


def _accuracies(task: str, runs: Sequence[ComparedRun]) -> list[str]:
    """Return accuracy, and pass@k and maj@k of the greatest k that all runs have."""
    names = [f"eval/{task}"]
    for start in (f"eval/{task}/pass@", f"eval/{task}/maj@"):
        common = set.intersection(*({name for row in run.evaluations for name in row if name.startswith(start)} for run in runs))
        counts = [int(count) for name in common if (count := name.removeprefix(start)).isdecimal()]
        names += [f"{start}{max(counts)}"] if counts else []
    return names


def _of_evaluations(task: str, runs: Sequence[ComparedRun]) -> list[str]:
    """Return failures, the ends of episodes that occur, and costs, if an evaluation is compared."""
    if all(run.trained for run in runs):
        return []
    rows = [row for run in runs for row in run.evaluations]
    ends = (f"eval/{task}/conversation/episode_{end}" for end in EPISODE_ENDS)
    costs = [f"eval/{task}/cost/{name}" for name in ("calls", "prompt_tokens", "sampled_tokens", "seconds")]
    known = [name for name in costs if any(name in row for row in rows)]
    return [f"eval/{task}/reward", f"eval/{task}/failed", *(name for name in ends if any(row.get(name) for row in rows)), *known]


def _at_three(groups: Sequence[SeedGroup], runs: Sequence[ComparedRun], name: str, task: str) -> list[ComparedFigure]:
    steps = [_steps_with(run, name) for run in runs]
    common = set.intersection(*map(set, steps))
    found = []
    if common:
        step = max(common)
        found.append(_evaluated(groups, name, f"step {step}" if any(run.trained for run in runs) else "", lambda run: step, task))
    if any(of_run and (not common or of_run[-1] != max(common)) for of_run in steps):
        paired = "" if all(run.trained for run in runs) else task
        found.append(_evaluated(groups, name, "last", lambda run: max(_steps_with(run, name), default=None), paired))
    best = _evaluated(groups, name, "best", lambda run: best_step(run.evaluations, name), "")
    if found and any(old.steps != new.steps for old, new in zip(found[-1].figures, best.figures, strict=True)):
        found.append(best)
    return found


def _steps_with(run: ComparedRun, name: str) -> list[int]:
    return [row["step"] for row in run.evaluations if figure_at(row, name) is not None]


def _evaluated(groups: Sequence[SeedGroup], name: str, at: str, step_of: Callable[[ComparedRun], int | None], task: str) -> ComparedFigure:
    figures = [_at(group, name, step_of) for group in groups]
    first, single = groups[0].runs, all(len(group.runs) == 1 for group in groups)
    pairs: list[PairedPrompts | None] = []
    figure = name.removeprefix(f"eval/{task}").removeprefix("/")
    if task and single and has_pairs(figure):
        for group in groups[1:]:
            steps = step_of(first[0]), step_of(group.runs[0])
            if steps[0] is not None and steps[1] is not None:
                pairs.append(paired_prompts(first[0].record, group.runs[0].record, task, (steps[0], steps[1]), figure))
            else:
                pairs.append(None)
    return ComparedFigure(name, at, tuple(figures), _differences(figures), tuple(pairs))


def _at(group: SeedGroup, name: str, step_of: Callable[[ComparedRun], int | None]) -> FigureOfGroup:
    rows = [row for run in group.runs for row in run.evaluations if row["step"] == step_of(run) and figure_at(row, name) is not None]
    if not rows:
        return FigureOfGroup(None)
    steps, values = tuple(row["step"] for row in rows), tuple(float(row[name]) for row in rows)
    if len(values) > 1:
        return FigureOfGroup(mean_interval(values), steps, "seeds", values)
    low, high = figure_at(rows[0], f"{name}/low"), figure_at(rows[0], f"{name}/high")
    return FigureOfGroup(Interval(values[0], low, high, 1), steps, "prompts" if low is not None else "", values)


def figures_compared(groups: Sequence[SeedGroup], metrics: Sequence[str]) -> list[ComparedFigure]:
    """Return means over each run's last _LAST_UPDATES updates; then seconds an update and tokens a second of the whole run."""
    names = [name for name in metrics if not name.startswith("eval/")] if metrics else _FINAL
    found = [_compared(groups, name, f"last {_LAST_UPDATES} updates", partial(_final, name)) for name in names]
    found.append(_compared(groups, "seconds an update", "all updates", _pace))
    found.append(_compared(groups, "tokens a second", "all updates", _throughput))
    return [one for one in found if any(figure.interval for figure in one.figures)]


def _compared(groups: Sequence[SeedGroup], name: str, at: str, read: Callable[[ComparedRun], float | None]) -> ComparedFigure:
    figures = []
    for group in groups:
        known = [(run, value) for run in group.runs if (value := read(run)) is not None]
        values, steps = tuple(value for _, value in known), tuple(run.updates[-1]["step"] for run, _ in known)
        figures.append(
            FigureOfGroup(mean_interval(values), steps, "seeds" if len(values) > 1 else "", values) if values else FigureOfGroup(None)
        )
    return ComparedFigure(name, at, tuple(figures), _differences(figures))


def _differences(figures: Sequence[FigureOfGroup]) -> tuple[Interval | None, ...]:
    first = figures[0].values
    return tuple(difference_of_means(first, other.values) if first and other.values else None for other in figures[1:])


def _final(name: str, run: ComparedRun) -> float | None:
    return _mean(run.updates[-_LAST_UPDATES:], name)


def _pace(run: ComparedRun) -> float | None:
    return _mean(run.updates, "seconds")


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [value for row in rows if (value := figure_at(row, name)) is not None]
    return math.fsum(values) / len(values) if values else None


def _throughput(run: ComparedRun) -> float | None:
    known = [
        (tokens, row["seconds"]) for row in run.updates if row["seconds"] and (tokens := figure_at(row, "response_tokens")) is not None
    ]
    return sum(tokens for tokens, _ in known) / sum(seconds for _, seconds in known) if known else None
