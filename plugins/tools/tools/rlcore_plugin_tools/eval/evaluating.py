"""Runs one evaluation from its plan to its figures. Jobs, prompts, noise and verdicts are those of a run's own evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rlcore.api import RunError
from rlcore.api.commands import Plan
from rlcore.api.runtime import (
    Evaluation,
    GroupJob,
    Judge,
    TaskReport,
    check_model_files,
    fingerprints,
    leave_out_bad_rows,
    load_data,
    make_evaluator,
    open_judge,
    read_texts,
)
from rlcore_plugin_tools.eval.costs import cost_of, outcomes_of
from rlcore_plugin_tools.eval.generation import Generated, Generation, generation_of
from rlcore_plugin_tools.eval.identity import evaluation_identity
from rlcore_plugin_tools.eval.part_file import FinishedPrompt
from rlcore_plugin_tools.eval.rows import group_of, row_of

__all__ = ["Evaluated", "Keeping", "evaluate"]

_PATIENCE = 0.5
"""Seconds to wait for verdicts at a time if nothing is left to generate."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Evaluated:
    """The result. ``prompts`` by task; ``dropped``: those that were too long; ``bad_rows``: the number of rows that were left out, by task
    and reason; ``seconds`` from the first request to the last verdict, of all commands that evaluated it; ``load_seconds`` before that, of
    the last one; ``tokens``: those that the answers have; ``kept``: the number of answers that were there already."""

    reports: Sequence[TaskReport]
    prompts: dict[str, int]
    dropped: dict[str, int]
    bad_rows: Mapping[str, Mapping[str, int]]
    load_seconds: float
    seconds: float
    tokens: int
    evaluation: Mapping[str, Any]
    """All that the answers depend on: settings, files, versions, plugins, data."""
    kept: int = 0

    @property
    def costs(self) -> dict[str, dict[str, Any]]:
        """The cost by task: calls, tokens, and seconds of an answer."""
        return {report.task: cost_of(report.rows) for report in self.reports}

    @property
    def outcomes(self) -> dict[str, dict[str, dict[str, int]]]:
        """The numbers of verdicts by outcome, and of episodes by their end, by task."""
        return {report.task: outcomes_of(report.rows) for report in self.reports}

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


class Keeping(Protocol):
    """Keeps prompts that are finished; see ``PartFile``."""

    def begin(self, evaluation: Mapping[str, Any]) -> Mapping[tuple[str, int], FinishedPrompt]:
        """Return what is finished already."""

    def keep(self, task: str, prompt: int, rows: Sequence[Mapping[str, Any]], elapsed: float) -> FinishedPrompt:
        """Keep one more."""


class InMemory:
    """Keeps nothing beyond the process."""

    def begin(self, evaluation: Mapping[str, Any]) -> dict[tuple[str, int], FinishedPrompt]:
        """See Keeping."""
        return {}

    def keep(self, task: str, prompt: int, rows: Sequence[Mapping[str, Any]], elapsed: float) -> FinishedPrompt:
        """See Keeping."""
        return FinishedPrompt(task, prompt, rows, 0, elapsed)


def evaluate(plan: Plan, say: Callable[[str], None], shown: Callable[[int, int], None], keeping: Keeping | None = None) -> Evaluated:
    """Generate and judge every completion. ``say`` receives notes for a person; ``shown`` receives how many completions are judged, of how
    many. Prompts that ``keeping`` has are not evaluated again.

    UsageErrors come before the first completion. RunError says that the engine or the judge cannot continue.
    """
    begun = time.monotonic()
    keeping = keeping or InMemory()
    with ExitStack() as closing:
        check_model_files(plan)
        plan, bad_rows = leave_out_bad_rows(plan)
        data = load_data(plan, say)
        texts = read_texts(plan, data, say=say)
        identity = evaluation_identity(plan, fingerprints(data, texts.tokenizer))
        there = keeping.begin(identity)
        evaluation = make_evaluator(plan, texts).start(-1)
        tasks = [task for task, prompts in texts.held_out.items() for _ in prompts]
        jobs = {(task, job.prompt.index): job for task, job in zip(tasks, evaluation.jobs, strict=True)}
        # A file that lost rows has prompts with too few; these are evaluated again.
        finished = {key: there[key] for key, job in jobs.items() if key in there and len(there[key].rows) == len(job.samplings)}
        left = {key: job for key, job in jobs.items() if key not in finished}
        kept = sum(len(one.rows) for one in finished.values())
        total = sum(len(job.samplings) for job in jobs.values())
        if kept:
            say(f"{kept} of {total} completions are there already")
        ready = time.monotonic()
        shown(kept, total)
        if left:
            judge = open_judge(plan, data, closing, say)
            generation = generation_of(plan, texts, closing)
            ready = time.monotonic()
            keys = {job.key: key for key, job in left.items()}
            generation.accept(list(left.values()))
            for job, rows in _judged(generation, judge, {job.key: task for (task, _), job in left.items()}):
                finished[keys[job.key]] = keeping.keep(*keys[job.key], rows, time.monotonic() - ready)
                shown(sum(len(one.rows) for one in finished.values()), total)
        groups = [group_of(job, finished[key].rows) for key, job in jobs.items()]
        reports = [
            replace(report, rows=tuple(row for key in jobs if key[0] == report.task for row in finished[key].rows))
            for report in evaluation.reports(groups)
        ]
        return Evaluated(
            reports=reports,
            prompts={task: len(prompts) for task, prompts in texts.held_out.items()},
            bad_rows={name.removeprefix("eval/"): reasons for name, reasons in bad_rows.counts.items()},
            dropped={name.removeprefix("eval/"): count for name, count in texts.dropped.items()},
            load_seconds=ready - begun,
            seconds=_seconds(finished.values()),
            tokens=sum(row["response_length"] for report in reports for row in report.rows),
            evaluation=identity,
            kept=kept,
        )


def _seconds(finished: Iterable[FinishedPrompt]) -> float:
    """Return the seconds of all sessions, each until its last prompt was finished."""
    last: dict[int, float] = {}
    for one in finished:
        last[one.session] = max(last.get(one.session, 0.0), one.elapsed)
    return sum(last.values())


def _judged(generation: Generation, judge: Judge, tasks: Mapping[int, str]) -> Iterator[tuple[GroupJob, list[dict[str, Any]]]]:
    """Yield each job (``tasks``: the task of each, by key) with its rows when it is judged; some are judged while others are generated. If
    an engine is lost, what it had generated is still judged."""
    waiting: dict[int, Generated] = {}
    generated = judged = 0
    lost: RunError | None = None
    while judged < (len(tasks) if lost is None else generated):
        try:
            step = [] if lost is not None else generation.step()
        except RunError as error:
            step, lost = [], error
        for made in step:
            produced = made.produced
            waiting[produced.job.key] = made
            generated += 1
            judge.submit(produced.job.key, produced.job.prompt, produced.rollouts, counted=False)
        for key, scores in judge.poll(0.0 if lost is None and generated < len(tasks) else _PATIENCE):
            made = waiting.pop(key)
            produced = replace(made.produced, scores=scores)
            (report,) = Evaluation([(tasks[key], produced.job)]).reports([produced])
            rows = [row_of(*each, produced.job.prompt.index) for each in zip(report.rows, scores, made.costs, strict=True)]
            judged += 1
            yield produced.job, rows
    if lost is not None:
        raise lost
