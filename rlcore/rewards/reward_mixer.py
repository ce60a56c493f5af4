"""Track the tasks that reward workers are scoring, and the texts that each task belongs to.

The ``Judge`` of a run shares this class with commands that score files. All of them must query the rewards in the same way. Otherwise the
scores of a file would differ from those of a run.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rlcore.contracts.types import Outcome, RewardInput, Score
from rlcore.rewards.pool import RewardPool
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.rewards.worker_protocol import USUAL_LIMITS, Call, Task, WorkerLimits

__all__ = ["PendingScores", "RewardMixer", "mix"]


@dataclass(slots=True, kw_only=True)
class PendingScores:
    """Texts of one prompt that are being scored.

    ``rewards`` holds the indices of the rewards that score them. ``missing`` maps each task in flight to the indices of its texts.
    ``scores[r, i]`` is the score of reward ``r`` for text ``i``.
    """

    rewards: tuple[int, ...] = ()
    missing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    scores: dict[tuple[int, int], Score] = field(default_factory=dict)


PendingT = TypeVar("PendingT", bound=PendingScores)


class RewardMixer(Generic[PendingT]):
    """Owns a ``RewardPool``, makes tasks from texts, keeps the case of each task in flight, and mixes the returned scores.

    A subclass submits the tasks to ``pool``, enters their cases in ``cases`` by task id, and removes them when the pool returns results.

    :param entries: the rewards, at least one, with distinct labels.
    :param workers: the number of worker processes.
    :param limits: the limits at which a worker is replaced.
    :param routes: the places of the rewards of each source, which have distinct names; (): one source has all of them.
    :raises PluginError: a reward cannot be built.
    """

    def __init__(
        self,
        entries: Sequence[RewardEntry],
        *,
        workers: int,
        limits: WorkerLimits = USUAL_LIMITS,
        routes: Sequence[Sequence[int]] = (),
    ) -> None:
        self.entries = tuple(entries)
        if not self.entries or len({entry.label for entry in entries}) < len(self.entries):
            raise ValueError(f"a judge needs at least one reward, each with its own name, got {[e.label for e in entries]}")
        self._routes = [tuple(route) for route in routes or [range(len(self.entries))]]
        self.pool = RewardPool(self.entries, workers=workers, limits=limits)
        self._task_ids = itertools.count()
        self.cases: dict[int, PendingT] = {}

    @property
    def notices(self) -> tuple[str, ...]:
        """The rewards' notices about this machine, such as "reward code: programs run under Landlock …", each once."""
        found = (f"reward {self.entries[place].label}: {text}" for place, text in self.pool.notices)
        return tuple(dict.fromkeys(found))

    def close(self) -> None:
        """Stop the workers and wait until they have ended. May be called twice."""
        self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def routes(self, reward: str | None, source: int = 0) -> tuple[int, ...]:
        """Return the indices of the rewards for a row that names ``reward``, or names none. Raises KeyError if its source has no such
        reward."""
        own = self._routes[source]
        return own if reward is None else ({self.entries[place].name: place for place in own}[reward],)

    def declared_columns(self, r: int, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a row that the reward declared. If it declared none and cannot declare any, return all columns."""
        declared = self.pool.traits[r].requires
        wanted = columns if declared is None else {*declared, *self.entries[r].spec.requires}
        return {name: value for name, value in columns.items() if name in wanted}

    def check_task(self, r: int, *items: RewardInput) -> Task:
        """Return a task that asks whether the reward can score these rows, all within the deadline of one. The complaint is about the first
        row that it cannot score."""
        return Task(task_id=next(self._task_ids), reward=r, call=Call.CHECK, items=items, deadline=self.entries[r].deadline)

    def score_tasks(self, case: PendingT, r: int, items: Mapping[int, RewardInput]) -> list[Task]:
        """Return tasks that score these texts, given by index, and enter them in ``case.missing``.

        A reward that scores groups gets one task for all texts, with the sum of their deadlines. Otherwise each text gets its own task."""
        together = self.pool.traits[r].group_level
        shares = [tuple(items)] if together and items else [(place,) for place in items]
        tasks = []
        for share in shares:
            task = Task(
                task_id=next(self._task_ids),
                reward=r,
                call=Call.GROUP if together else Call.SCORE,
                items=tuple(items[place] for place in share),
                deadline=self.entries[r].deadline * len(share),
            )
            case.missing[task.task_id] = share
            tasks.append(task)
        return tasks

    def mixed(self, case: PendingT, place: int) -> Score:
        """Return the score of one text, once all its rewards have answered."""
        return mix([(self.entries[r].name, self.entries[r].weight, case.scores[r, place]) for r in case.rewards])


def mix(verdicts: Sequence[tuple[str, float, Score]]) -> Score:
    """Combine (reward name, weight, score) tuples, in the order of the configuration and at least one, into the score that trains.

    value: the sum of weight x value. accuracy, format_ok and parsed: from the first reward that gives one. parts: weight x value under each
    reward's name, the reward's own parts as ``name/part``, unweighted, and its accuracy as ``name/accuracy``. turn_rewards: as value, over
    the rewards that give them. token_rewards: the weighted sum over the rewards that give them, which must have equal lengths.
    branch_values: as value; a reward without them gives its value to each branch. raw: the value of each reward. outcome: ``ok`` if all are
    ok, else the first other outcome. If one reward failed (timeout, error, infra, invalid), the combined score fails, because a partial sum
    is not a score. Masks: all must agree.
    """
    for name, _, score in verdicts:
        if not score.outcome.judged:
            return Score.failed(score.outcome, f"{name}: {score.reason}" if score.reason else name)
    parts: dict[str, float] = {}
    for name, weight, score in verdicts:
        parts[name] = weight * score.value
        parts.update({f"{name}/{part}": value for part, value in score.parts.items()})
        if score.accuracy is not None:
            parts[f"{name}/accuracy"] = score.accuracy
    scores = [score for _, _, score in verdicts]
    by_turn = [[weight * value for value in score.turn_rewards] for _, weight, score in verdicts if score.turn_rewards]
    by_token = [[weight * value for value in score.token_rewards] for _, weight, score in verdicts if score.token_rewards is not None]
    if len(set(map(len, by_token))) > 1:
        return Score.failed(Outcome.ERROR, f"the rewards gave {' and '.join(str(len(given)) for given in by_token)} token rewards")
    branches = {len(score.branch_values) for score in scores if score.branch_values}
    if len(branches) > 1:
        return Score.failed(Outcome.ERROR, f"the rewards gave values for {' and '.join(map(str, sorted(branches)))} branches")
    by_branch = [[weight * one for one in score.branch_values or [score.value] * max(branches, default=0)] for _, weight, score in verdicts]
    spoken = next((score for score in scores if score.outcome is not Outcome.OK), scores[0])
    return Score(
        value=sum(weight * score.value for _, weight, score in verdicts),
        accuracy=next((score.accuracy for score in scores if score.accuracy is not None), None),
        format_ok=next((score.format_ok for score in scores if score.format_ok is not None), None),
        parts=parts,
        outcome=spoken.outcome,
        reason=spoken.reason,
        parsed=next((score.parsed for score in scores if score.parsed is not None), None),
        in_statistics=all(score.in_statistics for score in scores),
        in_loss=all(score.in_loss for score in scores),
        turn_rewards=tuple(sum(of_turn) for of_turn in zip(*by_turn, strict=True)),
        token_rewards=tuple(map(sum, zip(*by_token, strict=True))) if by_token else None,
        branch_values=tuple(map(sum, zip(*by_branch, strict=True))),
        raw={name: score.value for name, _, score in verdicts},
    )
