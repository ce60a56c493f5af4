"""The evaluator: makes jobs of held-out tasks for a producer, and reports from the results.

It does not know when to evaluate or where rows are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from rlcore.contracts.runtime_interface import TaskReport
from rlcore.contracts.types import FinishReason, Prompt, Rollout, Sampling, Score
from rlcore.learning.accuracy_at_k import Estimate, majority_at_k, mean_interval, pass_at_k, usual_ks
from rlcore.roles.producer import GroupJob, ProducedGroup
from rlcore.roles.rollout_chat import chat_of, extra_figures, finite_mean

__all__ = ["Evaluation", "Evaluator", "HeldOut"]

EVALUATION_EPISODE = 2**31 - 1
"""The episode number in the noise keys of an evaluation. No training episode shares its random stream."""


class HeldOut(NamedTuple):
    """A held-out task: its prompts, and how they are answered: ``samples`` times each."""

    prompts: Sequence[Prompt]
    sampling: Sampling
    samples: int = 1


class Evaluator:
    """Makes the completions of every task."""

    def __init__(self, tasks: Mapping[str, tuple[Sequence[Prompt], Sampling, int]], seed: int) -> None:
        """:param tasks: by name, each as a ``HeldOut`` or a tuple of the same."""
        self._tasks = tasks
        self._seed = seed

    def start(self, first_key: int) -> Evaluation:
        """Start a new round. Its jobs take the keys from ``first_key`` downwards."""
        jobs: list[tuple[str, GroupJob]] = []
        for number, (task, (prompts, sampling, samples)) in enumerate(self._tasks.items()):
            samplings = (sampling,) * samples
            for prompt in prompts:
                noise = (self._seed, EVALUATION_EPISODE - number, prompt.index)
                key = first_key - len(jobs)
                jobs.append((task, GroupJob(key=key, prompt=prompt, samplings=samplings, noise=noise, counted=False)))
        return Evaluation(jobs)


class Evaluation:
    """One round: the ``jobs`` that producers must make, each with its task."""

    def __init__(self, jobs: Sequence[tuple[str, GroupJob]]) -> None:
        self._tasks = {job.key: task for task, job in jobs}
        self.jobs = [job for _, job in jobs]

    def reports(self, results: Iterable[ProducedGroup]) -> list[TaskReport]:
        """Return one report per task from the results of all jobs, in any order.

        Completions that could not be scored, or are masked, count neither for nor against; their rows say so."""
        by_key = {produced.job.key: produced for produced in results}
        by_task: dict[str, list[ProducedGroup]] = {}
        for key, task in self._tasks.items():
            by_task.setdefault(task, []).append(by_key[key])
        return [_report(task, made) for task, made in by_task.items()]


def _report(task: str, results: list[ProducedGroup]) -> TaskReport:
    made = [pair for produced in results for pair in _pairs(produced)]
    judged = [score for _, score in made if _counts(score)]
    by_prompt = [[score for score in produced.scores if _counts(score) and score.accuracy is not None] for produced in results]
    known = [scores for scores in by_prompt if scores]
    average = _average(known)
    return TaskReport(
        task=task,
        accuracy=average.mean if average else None,
        reward=finite_mean([score.value for score in judged]) if judged else None,
        rows=tuple(_row(produced.job.prompt, rollout, score) for produced in results for rollout, score in _pairs(produced)),
        failed=len(made) - len(judged),
        at_k={
            **({"low": average.low, "high": average.high} if average else {}),
            **_at_k(known),
            "length": fmean(rollout.length for rollout, _ in made),
            "truncated": fmean(rollout.finish is FinishReason.LENGTH for rollout, _ in made),
            **extra_figures(rollout.extra for rollout, _ in made),
        },
    )


def _counts(score: Score) -> bool:
    return score.outcome.judged and score.in_statistics


def _pairs(produced: ProducedGroup) -> Iterator[tuple[Rollout, Score]]:
    yield from zip(produced.rollouts, produced.scores, strict=True)


def _average(by_prompt: Sequence[Sequence[Score]]) -> Estimate | None:
    """Return avg@k. Prompts have equal weight, however many of their completions were scored."""
    if not by_prompt:
        return None
    return mean_interval([fmean(_accuracies(scores)) for scores in by_prompt], max(map(len, by_prompt)))


def _at_k(by_prompt: Sequence[Sequence[Score]]) -> dict[str, float]:
    """Return pass@k and maj@k over the prompts of which at least k completions were scored. Without any answer, nothing was voted on."""
    figures: dict[str, float] = {}
    voted = any(score.parsed is not None for scores in by_prompt for score in scores)
    for k in usual_ks(max(map(len, by_prompt), default=0)):
        enough = [scores for scores in by_prompt if len(scores) >= k]
        by_name = {f"pass@{k}": [pass_at_k(len(scores), sum(_accuracies(scores)), k) for scores in enough]}
        if voted:
            by_name[f"maj@{k}"] = [majority_at_k([score.parsed for score in scores], _accuracies(scores), k) for scores in enough]
        for name, values in by_name.items():
            estimate = mean_interval(values)
            figures |= {name: estimate.mean, f"{name}/low": estimate.low, f"{name}/high": estimate.high}
    return figures


def _accuracies(scores: Sequence[Score]) -> list[float]:
    return [score.accuracy for score in scores if score.accuracy is not None]


def _row(prompt: Prompt, rollout: Rollout, score: Score) -> dict[str, Any]:
    return {
        "prompt_id": prompt.prompt_id,
        "prompt": [message.plain() for message in prompt.messages],
        "index": rollout.index,
        "prediction": rollout.text,
        "gold": prompt.columns.get("gt_answer"),
        "parsed": score.parsed,
        "format_valid": score.format_ok,
        "ans_valid": score.accuracy,
        "response_length": rollout.length,
        "reward": score.value if score.in_statistics else None,  # a failure of the judge or the machine is no reward 0
        "outcome": score.outcome.value,
        "reason": score.reason,
        "finish": rollout.finish.value,
        **chat_of(rollout, score),
    }
