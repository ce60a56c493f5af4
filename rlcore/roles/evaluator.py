"""The evaluator: held-out tasks as jobs for a producer, and what came of them. It knows neither when to evaluate nor where rows go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, first_key: int) -> Evaluation:
        """A fresh round; its jobs take the keys from ``first_key`` downwards."""
        return Evaluation(dict(self._jobs(first_key)))

    def _jobs(self, key: int) -> Iterator[tuple[int, tuple[str, GroupJob]]]:
        for number, (task, prompts) in enumerate(self._tasks.items()):
            for prompt in prompts:
                noise = (self._seed, EVALUATION_EPISODE - number, prompt.index)
                job = GroupJob(key=key, prompt=prompt, samplings=(self._sampling,), noise=noise, counted=False)
                yield key, (task, job)
                key -= 1


class Evaluation:
    """One round under way."""

    def __init__(self, jobs: dict[int, tuple[str, GroupJob]]) -> None:
        self._jobs = jobs
        self._results: dict[int, Produced] = {}

    @property
    def jobs(self) -> list[GroupJob]:
        """What a producer must make."""
        return [job for _, job in self._jobs.values()]

    @property
    def whole(self) -> bool:
        """True where every job is back."""
        return len(self._results) == len(self._jobs)

    def collect(self, produced: Produced) -> bool:
        """Take a result of this round; False where it belongs to somebody else."""
        if produced.job.key not in self._jobs:
            return False
        self._results[produced.job.key] = produced
        return True

    def reports(self) -> list[TaskReport]:
        """One report a task. Prompts whose judge failed count neither for nor against; the rows say so."""
        by_task: dict[str, list[Produced]] = {}
        for key, (task, _) in self._jobs.items():
            by_task.setdefault(task, []).append(self._results[key])
        return [_report(task, results) for task, results in by_task.items()]


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
