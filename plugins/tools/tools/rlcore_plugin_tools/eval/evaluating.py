"""Runs one evaluation from its plan to its figures. Jobs, prompts, noise and verdicts are those of a run's own evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from rlcore.api.commands import Plan
from rlcore.api.runtime import (
    Judge,
    ProducedGroup,
    TaskReport,
    check_model_files,
    leave_out_bad_rows,
    load_data,
    make_evaluator,
    open_judge,
    read_texts,
)
from rlcore_plugin_tools.eval.generation import Generation, generation_of

__all__ = ["Evaluated", "evaluate"]

_PATIENCE = 0.5
"""Seconds to wait for verdicts at a time if nothing is left to generate."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Evaluated:
    """The result. ``prompts`` by task; ``dropped``: those that were too long; ``bad_rows``: the number of rows that were left out, by task
    and reason; ``seconds`` from the first request to the last verdict; ``load_seconds`` before that; ``tokens``: sampled tokens."""

    reports: Sequence[TaskReport]
    prompts: dict[str, int]
    dropped: dict[str, int]
    bad_rows: Mapping[str, Mapping[str, int]]
    load_seconds: float
    seconds: float
    tokens: int

    @property
    def judged(self) -> int:
        """The number of completions that have a verdict."""
        return sum(len(report.rows) - report.failed for report in self.reports)

    @property
    def accuracy(self) -> dict[str, float | None]:
        """The share of right completions by task; None if none could be judged."""
        return {report.task: report.accuracy for report in self.reports}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each completion of all tasks: prompt, answer and verdict."""
        return [{"task": report.task, **row} for report in self.reports for row in report.rows]

    def __repr__(self) -> str:
        told = [f"{task} {'–' if share is None else format(share, '.3f')}" for task, share in self.accuracy.items()]
        return f"<evaluation: {', '.join(told)}; {len(self.rows)} completions, {self.seconds:.1f} s>"


def evaluate(plan: Plan, say: Callable[[str], None], shown: Callable[[int, int], None]) -> Evaluated:
    """Generate and judge every completion. ``say`` receives notes for a person; ``shown`` receives how many completions are judged, of how
    many.

    UsageErrors come before the first completion. RunError says that the engine or the judge cannot continue.
    """
    begun = time.monotonic()
    with ExitStack() as closing:
        check_model_files(plan)
        plan, bad_rows = leave_out_bad_rows(plan)
        data = load_data(plan, say)
        judge = open_judge(plan, data, closing, say)
        texts = read_texts(plan, data, say=say)
        evaluation = make_evaluator(plan, texts).start(-1)
        generation = generation_of(plan, texts, closing)
        ready = time.monotonic()
        total = sum(len(job.samplings) for job in evaluation.jobs)
        generation.accept(evaluation.jobs)
        results = _judged(generation, judge, total, shown)
        done = time.monotonic()
        return Evaluated(
            reports=evaluation.reports(results),
            prompts={task: len(prompts) for task, prompts in texts.held_out.items()},
            bad_rows={name.removeprefix("eval/"): reasons for name, reasons in bad_rows.counts.items()},
            dropped={name.removeprefix("eval/"): count for name, count in texts.dropped.items()},
            load_seconds=ready - begun,
            seconds=done - ready,
            tokens=sum(rollout.length for produced in results for rollout in produced.rollouts),
        )


def _judged(generation: Generation, judge: Judge, total: int, shown: Callable[[int, int], None]) -> list[ProducedGroup]:
    """Return the results of all jobs; some are judged while others are generated."""
    results: list[ProducedGroup] = []
    open_jobs: dict[int, ProducedGroup] = {}
    made = judged = 0
    shown(0, total)
    while judged < total:
        for produced in generation.step():
            open_jobs[produced.job.key] = produced
            made += len(produced.rollouts)
            judge.submit(produced.job.key, produced.job.prompt, produced.rollouts, counted=False)
        for key, scores in judge.poll(_PATIENCE if made == total else 0.0):
            results.append(replace(open_jobs.pop(key), scores=scores))
            judged += len(scores)
        shown(judged, total)
    return results
