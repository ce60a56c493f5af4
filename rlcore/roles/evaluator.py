"""The evaluator: held-out tasks as jobs for a producer, and what came of them. It knows neither when to evaluate nor where rows go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.contracts.types import Prompt, Sampling
from rlcore.roles.producer import GroupJob, Produced

__all__ = ["Evaluation", "Evaluator", "TaskReport"]

EVALUATION_EPISODE = 2**31 - 1
"""The episode number in an evaluation's noise keys: no training episode shares its random stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task at one version: means over the judged prompts, None where nothing gave the figure; ``failed``: how many others there are;
    a row a prompt."""

    task: str
    accuracy: float | None
    reward: float | None
    rows: tuple[Mapping[str, Any], ...]
    failed: int = 0


class Evaluator:
    """Makes one completion a prompt of every task."""

    def __init__(self, tasks: Mapping[str, tuple[Prompt, ...]], sampling: Sampling, seed: int) -> None:
        self._tasks = tasks
        self._sampling = sampling
        self._seed = seed

    def start(self, first_key: int) -> Evaluation:
        """A fresh round; its jobs take the keys from ``first_key`` downwards."""
        jobs: list[tuple[str, GroupJob]] = []
        for number, (task, prompts) in enumerate(self._tasks.items()):
            for prompt in prompts:
                noise = (self._seed, EVALUATION_EPISODE - number, prompt.index)
                key = first_key - len(jobs)
                jobs.append((task, GroupJob(key=key, prompt=prompt, samplings=(self._sampling,), noise=noise, counted=False)))
        return Evaluation(jobs)


class Evaluation:
    """One round: the ``jobs`` that producers must make, each with its task."""

    def __init__(self, jobs: Sequence[tuple[str, GroupJob]]) -> None:
        self._tasks = {job.key: task for task, job in jobs}
        self.jobs = [job for _, job in jobs]

    def reports(self, results: Iterable[Produced]) -> list[TaskReport]:
        """One report a task, of the results of all jobs, in any order. Prompts whose judge failed count neither for nor against; the rows
        say so."""
        by_key = {produced.job.key: produced for produced in results}
        by_task: dict[str, list[Produced]] = {}
        for key, task in self._tasks.items():
            by_task.setdefault(task, []).append(by_key[key])
        return [_report(task, made) for task, made in by_task.items()]


def _report(task: str, results: list[Produced]) -> TaskReport:
    judged = [(produced.scores[0], produced.rollouts[0]) for produced in results if produced.scores[0].outcome.judged]
    accuracies = [score.accuracy for score, _ in judged if score.accuracy is not None]
    return TaskReport(
        task=task,
        accuracy=_mean(accuracies),
        reward=_mean([score.value for score, _ in judged]),
        rows=tuple(_row(produced) for produced in results),
        failed=len(results) - len(judged),
    )


def _mean(values: list[float] | list[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _row(produced: Produced) -> dict[str, Any]:
    prompt, rollout, score = produced.job.prompt, produced.rollouts[0], produced.scores[0]
    return {
        "prompt_id": prompt.prompt_id,
        "prompt": [{"role": message.role, "content": message.content} for message in prompt.messages],
        "prediction": rollout.text,
        "gold": prompt.columns.get("gt_answer"),
        "parsed": score.parsed,
        "format_valid": score.format_ok,
        "ans_valid": score.accuracy,
        "response_length": rollout.length,
        "reward": score.value,
        "outcome": score.outcome.value,
        "reason": score.reason,
        "finish": rollout.finish.value,
    }
