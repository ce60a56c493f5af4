"""Score groups of rollouts: route rows to rewards, combine several scores into one, and count failures against their budgets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from math import inf
from operator import itemgetter
from typing import Any

from rlcore.contracts.errors import DataError, InfrastructureError, RewardBudgetError
from rlcore.contracts.types import FinishReason, Outcome, Prompt, RewardInput, Rollout, Score
from rlcore.rewards.judge_stats import JudgeCounts, JudgeStats
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.rewards.reward_mixer import PendingScores, RewardMixer
from rlcore.rewards.task_queue import Result
from rlcore.rewards.worker_protocol import USUAL_LIMITS, Call, WorkerLimits

__all__ = ["Judge"]

_ABORTED = Score.failed(Outcome.INFRA, "the rollout was aborted")
_NAMED_ROWS = 3  # bad rows that an error names in full
_ENOUGH_ROWS = 10  # bad rows after which the search for more stops
_ROWS_AT_ONCE = 10_000  # rows whose checks are in flight, so that they need little memory
_ROWS_OF_A_TASK = 50  # rows that one message to a worker holds
_DOUBTFUL_TASKS = 2  # tasks with a bad row after which rows are checked one by one


@dataclass(slots=True, kw_only=True)
class PendingGroup(PendingScores):
    """A group of rollouts that is being scored. ``row`` is the place of the prompt, ``source`` the number of its source, and ``size`` the
    number of rollouts. ``verdicts``: the scores, by index, of rollouts that no reward judges."""

    key: int
    row: str
    size: int
    verdicts: Mapping[int, Score]
    counted: bool = True
    source: int = 0


class Judge(RewardMixer[PendingGroup]):
    """Routes rows to rewards and combines their scores. Thread-safe: any thread may submit, and any thread may poll.

    A row whose ``reward`` field is set goes only to that reward; other rows go to all rewards. A reward sees only the columns that it
    declared. Aborted rollouts are not scored: their score is a failure (infra), masked and outside the budget. A rollout that has a verdict
    is not scored either.

    :param entries: the rewards of the run, at least one, with distinct labels.
    :param workers: the number of worker processes.
    :param error_budget: the share of failures (timeout, error, infra) among the last 1000 verdicts of a source above which ``poll`` raises
        RewardBudgetError.
    :param limits: the limits at which a worker is replaced.
    :param routes: the places of the rewards of each source; (): one source has all of them.
    :param sources: the names of the sources, for messages; () if there is one.
    :raises PluginError: a reward cannot be built.
    """

    def __init__(
        self,
        entries: Sequence[RewardEntry],
        *,
        workers: int,
        error_budget: float = 0.05,
        limits: WorkerLimits = USUAL_LIMITS,
        routes: Sequence[Sequence[int]] = (),
        sources: Sequence[str] = (),
    ) -> None:
        super().__init__(entries, workers=workers, limits=limits, routes=routes)
        self._lock = threading.Lock()
        self._groups: dict[int, PendingGroup] = {}
        self._checked: dict[int, Result] = {}
        self._stopped = ""
        self._finished: list[tuple[int, tuple[Score, ...]]] = []
        budgets = {entry.label: entry.budget for entry in self.entries}
        self._tally = JudgeStats([entry.label for entry in self.entries], error_budget, budgets, sources)

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        """Queue one group and return immediately.

        :param key: returned with the scores; must not be in use.
        :param counted: whether the group enters the metrics and the budgets, and may end the run. False for an evaluation.
        :raises DataError: the row routes itself to a reward that the run does not have.
        """
        row, rewards = prompt.source or prompt.prompt_id, self._routes_of(prompt)
        verdicts = {place: rollout.verdict for place, rollout in enumerate(rollouts) if rollout.verdict is not None}
        group = PendingGroup(
            key=key, row=row, size=len(rollouts), rewards=rewards, verdicts=verdicts, counted=counted, source=prompt.source_index
        )
        tasks = []
        for r in group.rewards:
            columns, items, reads_tokens = self.declared_columns(r, prompt.columns), {}, self.entries[r].spec.reads_tokens
            for place, rollout in enumerate(rollouts):
                if rollout.finish is FinishReason.ABORTED:
                    group.scores[r, place] = _ABORTED
                elif place not in verdicts:
                    items[place] = RewardInput(
                        messages=prompt.messages,
                        columns=columns,
                        text=rollout.text,
                        finish=rollout.finish,
                        turns=rollout.turns,
                        turn_rewards=rollout.turn_rewards,
                        extra=rollout.extra,
                        token_ids=rollout.token_ids if reads_tokens else None,
                    )
            tasks += self.score_tasks(group, r, items)
        with self._lock:
            if key in self._groups or any(key == finished for finished, _ in self._finished):
                raise ValueError(f"group {key} is already being scored; keys must be distinct")
            self._groups[key] = group
            self.cases.update(dict.fromkeys(group.missing, group))
            if not tasks:
                self._close_group(group)
        if tasks:
            self.pool.submit(tasks)
        else:
            self.pool.nudge()

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        """Return the groups that are completely scored, with scores in the order of the rollouts.

        Waits up to ``timeout`` seconds for a group, then returns [].

        :raises RewardBudgetError: more verdicts failed than allowed, or the policy of a verdict is to stop.
        :raises RunError: no worker can be started any more, or the judge is closed.
        """
        limit = time.monotonic() + timeout
        while True:
            seen = self.pool.nudges
            with self._lock:
                finished, self._finished = self._finished, []
            if finished:
                return finished
            left = limit - time.monotonic()
            results = self.pool.poll(max(0.0, left), seen)
            self._take(results, news=any(result.task.call is Call.CHECK for result in results))
            if left <= 0 and not self._finished:
                return []

    def check(self, prompts: Iterable[Prompt], told: Callable[[int], None] = lambda done: None) -> None:
        """Ask every reward whether it can score the rows meant for it. Rewards without their own ``check`` cost nothing.

        :param told: receives the number of rows that are checked so far, now and then.
        :raises DataError: names the first rows that cannot be scored.
        :raises InfrastructureError: the machine around a reward failed, so that nothing is known about the rows.
        """
        if bad := self._unscorable(prompts, told, _ENOUGH_ROWS):
            raise self._complain(bad)

    def unscorable(self, prompts: Iterable[Prompt], told: Callable[[int], None] = lambda done: None) -> dict[str, str]:
        """Return the rows that cannot be scored: place of a prompt -> the reason. Every row is checked.

        :param told: receives the number of rows that are checked so far, now and then.
        :raises InfrastructureError: the machine around a reward failed, so that nothing is known about the rows.
        """
        bad = self._unscorable(prompts, told)
        if any(result.failure is Outcome.INFRA for _, _, result in bad):
            raise self._complain(bad)
        return {_place(prompt): self._said_of(r, result) for prompt, r, result in reversed(bad)}

    def _unscorable(self, prompts: Iterable[Prompt], told: Callable[[int], None], most: float = inf) -> list[tuple[Prompt, int, Result]]:
        """Return the rows that cannot be scored, in order; at least ``most`` of them if there are so many."""
        rows, bad, done = iter(prompts), list[tuple[Prompt, int, Result]](), 0
        while len(bad) < most and (part := list(islice(rows, _ROWS_AT_ONCE))):
            bad += self._unscorable_among(part, most - len(bad))
            told(done := done + len(part))
        return bad

    def _unscorable_among(self, prompts: Sequence[Prompt], most: float) -> list[tuple[Prompt, int, Result]]:
        """Check rows together, because most data is good and a message costs more than most checks; then single rows of those tasks
        that have a complaint or no answer."""
        asked = ((r, prompt) for prompt in prompts for r in self._routes_of(prompt) if self.pool.traits[r].checks)
        by_reward = {r: [prompt for _, prompt in rows] for r, rows in groupby(sorted(asked, key=_first), key=_first)}
        tasks = [
            (r, rows[start : start + _ROWS_OF_A_TASK]) for r, rows in by_reward.items() for start in range(0, len(rows), _ROWS_OF_A_TASK)
        ]
        doubtful = self._not_good(tasks, _DOUBTFUL_TASKS)
        found = self._not_good([(r, [row]) for r, rows, _ in doubtful for row in rows], most)
        bad = [(prompt, r, result) for r, (prompt,), result in found if result is not None]
        return sorted(bad, key=lambda row: row[0].index)

    def _not_good(self, asked: Sequence[tuple[int, list[Prompt]]], most: float) -> list[tuple[int, list[Prompt], Result | None]]:
        """Return the tasks with a complaint, and those without an answer because there were ``most`` complaints before."""
        tasks = {}
        for r, prompts in asked:
            rows = (RewardInput(messages=(), columns=self.declared_columns(r, prompt.columns), text="") for prompt in prompts)
            task = self.check_task(r, *rows)
            tasks[task.task_id] = (task, r, prompts)
        seen = self.pool.nudges
        self.pool.submit(task for task, _, _ in tasks.values())
        waiting, complaints = set(tasks), dict[int, Result]()
        # A hanging check costs its deadline twice. A few bad rows are enough for the error, whatever the size of the data.
        while waiting and len(complaints) < most:
            results = self.pool.poll(60.0, seen)
            self._take(results, news=any(result.task.task_id not in tasks for result in results))
            seen = self.pool.nudges
            with self._lock:
                answers = [self._checked.pop(task_id) for task_id in waiting & self._checked.keys()]
            waiting -= {answer.task.task_id for answer in answers}
            complaints |= {answer.task.task_id: answer for answer in answers if answer.complaint is not None}
        self.pool.cancel(waiting)
        return [
            (r, prompts, complaints.get(task_id)) for task_id, (_, r, prompts) in tasks.items() if task_id in waiting | complaints.keys()
        ]

    def metrics(self) -> dict[str, float]:
        """Return the figures since the last call; see ``JudgeCounts.figures``."""
        return self.take_judged().figures()

    def take_judged(self) -> JudgeCounts:
        """Return the counts since the last call of this method or of ``metrics``, for adding to those of other judges."""
        with self._lock:
            return self._tally.take()

    def take_faults(self) -> list[dict[str, Any]]:
        """Return new exceptions of each reward since the last call, with ``reward``, ``row``, ``reason``, ``traceback`` and ``text``."""
        with self._lock:
            return self._tally.take_faults()

    def _routes_of(self, prompt: Prompt) -> tuple[int, ...]:
        try:
            return self.routes(prompt.reward, prompt.source_index)
        except KeyError as error:
            names = ", ".join(self.entries[place].name for place in self.routes(None, prompt.source_index))
            raise DataError(
                f"{prompt.source or prompt.prompt_id}: the row asks for reward {prompt.reward!r}, but the run has "
                f"{names}; add a [[rewards]] section for it or drop the row's reward field"
            ) from error

    # --- results ----------------------------------------------------------------------------------------------------

    def _take(self, results: Sequence[Result], *, news: bool) -> None:
        """Store results. ``news``: another thread, which sleeps in the pool, waits for some of them."""
        with self._lock:
            for result in results:
                if result.task.call is Call.CHECK:
                    self._checked[result.task.task_id] = result
                else:
                    self._take_scores(result)
            if news:
                self.pool.nudge()
            if self._stopped:
                raise RewardBudgetError(self._stopped)
            self._tally.check_budget()

    def _take_scores(self, result: Result) -> None:
        task_id, r = result.task.task_id, result.task.reward
        group, entry = self.cases.pop(task_id), self.entries[r]
        if result.trace:
            self._tally.fault(entry.label, row=group.row, reason=str(result.complaint), trace=result.trace, text=result.task.items[0].text)
        if group.counted:
            self._tally.verdict(entry.label, result.scores, result.seconds, group.source)
        for place, score in zip(group.missing.pop(task_id), result.scores, strict=True):
            group.scores[r, place] = self._by_policy(entry, score, group)
        if not group.missing:
            self._close_group(group)

    def _by_policy(self, entry: RewardEntry, score: Score, group: PendingGroup) -> Score:
        """Apply the entry's policy to a score: keep it, mask it, or record that it ends the run."""
        action, outcome = entry.action(score.outcome), score.outcome.value
        if action == "stop" and group.counted and not self._stopped:
            self._stopped = (
                f"reward {entry.label} ended with {outcome} on a response to {group.row} ({score.reason or 'no reason given'}), and its "
                f'policy {outcome} = "stop" ends the run; fix the reward or its data, or write {outcome} = "mask" in policy of its '
                "[[rewards]]"
            )
        return replace(score, in_statistics=False, in_loss=False) if action == "mask" else score

    def _close_group(self, group: PendingGroup) -> None:
        del self._groups[group.key]
        scores = tuple(group.verdicts.get(place) or self.mixed(group, place) for place in range(group.size))
        if group.counted:
            self._tally.mixed(scores)
        self._finished.append((group.key, scores))

    def _complain(self, bad: Sequence[tuple[Prompt, int, Result]]) -> DataError | InfrastructureError:
        for prompt, r, result in bad:
            if result.failure is Outcome.INFRA:
                return InfrastructureError(f"reward {self.entries[r].label} could not check {_place(prompt)}, twice: {result.complaint}")
        named = "; ".join(f"{_place(prompt)}: {self._said_of(r, result)}" for prompt, r, result in bad[:_NAMED_ROWS])
        more, least = len(bad) - _NAMED_ROWS, "at least " if len(bad) >= _ENOUGH_ROWS else ""
        return DataError(f"{named}; and {least}{more} more rows" if more > 0 else named)

    def _said_of(self, r: int, result: Result) -> str:
        return f"reward {self.entries[r].label} cannot score this row: {result.complaint}"


_first = itemgetter(0)


def _place(prompt: Prompt) -> str:
    return prompt.source or prompt.prompt_id
