"""Groups of rollouts in, groups of scores out: routes rows to rewards, mixes several, keeps the books on failures."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from rlcore.errors import DataError, InfrastructureError, RewardBudgetError
from rlcore.rewards.entry import RewardEntry
from rlcore.rewards.faults import Faults
from rlcore.rewards.inbox import Result
from rlcore.rewards.mixing import mix
from rlcore.rewards.pool import MAX_GROWTH, MAX_ITEMS, RewardPool
from rlcore.rewards.protocol import Call, Task
from rlcore.rewards.tally import Tally
from rlcore.rewards.tasks import check_task, score_tasks, seen_columns
from rlcore.types import Finish, Outcome, Prompt, RewardInput, Rollout, Score

__all__ = ["Judge"]

_ABORTED = Score.failed(Outcome.INFRA, "the rollout was aborted")
_NAMED_ROWS = 3  # bad rows that an error names in full
_ENOUGH_ROWS = 10  # bad rows after which no more are looked for


@dataclass(slots=True)
class _Open:
    """A group that is being judged: ``verdicts[r][i]`` is what reward ``r`` said of rollout ``i``; ``missing`` are the tasks that are
    out, each with the places of its rollouts; ``row`` says where the prompt stands."""

    row: str
    size: int
    rewards: tuple[int, ...]
    verdicts: dict[int, list[Score | None]]
    missing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    counted: bool = True


class Judge:
    """Mixes and routes; owns a ``RewardPool``. Thread-safe: any thread may submit, any may poll.

    A row whose ``reward`` field is set goes to that reward alone, any other to all. A reward sees only the columns it declared.
    Aborted rollouts are not judged: their score is a failure (infra), masked and outside the budget.

    :param entries: the rewards of the run, at least one, names distinct.
    :param workers: worker processes.
    :param error_budget: share of verdicts (timeout, error, infra) among the last 1000 above which ``poll`` raises RewardBudgetError.
    :param max_items: calls after which a worker is replaced.
    :param max_growth: and when its memory grew by that many bytes.
    :raises PluginError: a reward cannot be built.
    """

    def __init__(
        self,
        entries: Sequence[RewardEntry],
        *,
        workers: int,
        error_budget: float = 0.05,
        max_items: int = MAX_ITEMS,
        max_growth: int = MAX_GROWTH,
    ) -> None:
        self._entries = tuple(entries)
        self._index = {entry.name: number for number, entry in enumerate(self._entries)}
        if not self._entries or len(self._index) < len(self._entries):
            raise ValueError(f"a judge needs at least one reward, each under a name of its own, got {[e.name for e in entries]}")
        self._pool = RewardPool(self._entries, workers=workers, max_items=max_items, max_growth=max_growth)
        self._lock = threading.Lock()
        self._task_ids = itertools.count()
        self._keys: dict[int, int] = {}
        self._open: dict[int, _Open] = {}
        self._checked: dict[int, Result] = {}
        self._stopped = ""
        self._finished: list[tuple[int, tuple[Score, ...]]] = []
        self._tally = Tally([entry.name for entry in self._entries], error_budget, {e.name: e.budget for e in self._entries})
        self._faults = Faults([entry.name for entry in self._entries])

    @property
    def notices(self) -> tuple[str, ...]:
        """What the rewards say of this machine: "reward code: programs run under Landlock …", each once."""
        found = (f"reward {self._entries[place].name}: {text}" for place, text in self._pool.notices)
        return tuple(dict.fromkeys(found))

    @property
    def pending(self) -> int:
        """Groups submitted and not yet returned by ``poll``."""
        with self._lock:
            return len(self._open) + len(self._finished)

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        """Queue one group; returns at once. ``key`` comes back with the scores and must not be in use. ``counted``: it enters the metrics
        and the budgets, and may end the run; an evaluation does not.

        :raises DataError: the row routes itself to a reward that the run does not have.
        """
        rewards = self._routes(prompt)
        verdicts = {r: [_ABORTED if rollout.finish is Finish.ABORTED else None for rollout in rollouts] for r in rewards}
        row = prompt.source or prompt.prompt_id
        group = _Open(row=row, size=len(rollouts), rewards=rewards, verdicts=verdicts, counted=counted)
        tasks = [task for r in rewards for task in self._tasks(r, prompt, rollouts, group.missing)]
        with self._lock:
            if key in self._open or any(key == finished for finished, _ in self._finished):
                raise ValueError(f"group {key} is being judged already; keys must be distinct")
            self._open[key] = group
            self._keys.update((task.task_id, key) for task in tasks)
            if not tasks:
                self._close_group(key, group)
        if tasks:
            self._pool.submit(tasks)
        else:
            self._pool.nudge()

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        """Groups that are judged whole, scores in the order of the rollouts; waits up to ``timeout`` seconds for one, then [].

        :raises RewardBudgetError: more verdicts failed than allowed, or a verdict came whose policy is to stop.
        :raises RunError: no worker can be started any more, or the judge is closed.
        """
        limit = time.monotonic() + timeout
        while True:
            seen = self._pool.nudges
            with self._lock:
                finished, self._finished = self._finished, []
            if finished:
                return finished
            left = limit - time.monotonic()
            results = self._pool.poll(max(0.0, left), seen)
            self._take(results, news=any(result.task.call is Call.CHECK for result in results))
            if left <= 0 and not self._finished:
                return []

    def cancel(self, key: int) -> None:
        """Forget a group; what is being judged of it ends unheard. Unknown keys are ignored."""
        with self._lock:
            group = self._open.pop(key, None)
            self._finished = [(other, scores) for other, scores in self._finished if other != key]
            dropped = set(group.missing) if group is not None else set()
            for task_id in dropped:
                self._keys.pop(task_id, None)
        self._pool.cancel(dropped)

    def check(self, prompts: Iterable[Prompt]) -> None:
        """Ask every reward whether it can judge the rows meant for it; rewards without a ``check`` of their own cost nothing.

        :raises DataError: naming the first rows that cannot be judged.
        :raises InfrastructureError: the machine around a reward failed, so that nothing is known of the rows.
        """
        asked: dict[int, tuple[Prompt, int]] = {}
        for prompt in prompts:
            for r in self._routes(prompt):
                if self._pool.traits[r].checks:
                    asked[next(self._task_ids)] = (prompt, r)
        seen = self._pool.nudges
        self._pool.submit(check_task(task_id, r, self._entries[r], self._item(r, prompt)) for task_id, (prompt, r) in asked.items())
        answers: dict[int, Result] = {}
        # A check that hangs costs its deadline twice; a handful of bad rows is enough to say so, whatever the size of the data.
        while len(answers) < len(asked) and sum(answer.complaint is not None for answer in answers.values()) < _ENOUGH_ROWS:
            results = self._pool.poll(60.0, seen)
            self._take(results, news=any(result.task.task_id not in asked for result in results))
            seen = self._pool.nudges
            with self._lock:
                answers.update({task_id: self._checked.pop(task_id) for task_id in asked if task_id in self._checked})
        self._pool.cancel(set(asked) - set(answers))
        bad = [(*asked[task_id], answers[task_id]) for task_id in asked if task_id in answers and answers[task_id].complaint]
        if bad:
            raise self._complain(bad)

    def metrics(self) -> dict[str, float]:
        """Figures since the last call: ``reward/outcome/<outcome>`` (shares), ``reward/latency_p50`` and ``_p99`` (seconds per verdict),
        ``reward/timeouts``; the same under ``reward/<name>/`` where there are several rewards."""
        with self._lock:
            return self._tally.metrics()

    def take_faults(self) -> list[dict[str, Any]]:
        """The first exceptions of each reward, new since the last call: ``reward``, ``row``, ``reason``, ``traceback``, ``text``."""
        with self._lock:
            return self._faults.take()

    def close(self) -> None:
        """Stop the workers and wait until they are gone. May be called twice."""
        self._pool.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _routes(self, prompt: Prompt) -> tuple[int, ...]:
        if prompt.reward is None:
            return tuple(range(len(self._entries)))
        if prompt.reward not in self._index:
            names = ", ".join(self._index)
            raise DataError(
                f"{prompt.source or prompt.prompt_id}: the row asks for reward {prompt.reward!r}, but the run has {names}; "
                f"add a [[rewards]] section for it or drop the row's reward field"
            )
        return (self._index[prompt.reward],)

    def _tasks(self, r: int, prompt: Prompt, rollouts: Sequence[Rollout], missing: dict[int, tuple[int, ...]]) -> list[Task]:
        """One task per rollout, or one for the group; books them in ``missing``."""
        items = {place: self._item(r, prompt, rollout) for place, rollout in enumerate(rollouts) if rollout.finish is not Finish.ABORTED}
        booked = score_tasks(self._task_ids, r, self._entries[r], self._pool.traits[r], items)
        missing.update((task.task_id, places) for task, places in booked)
        return [task for task, _ in booked]

    def _item(self, r: int, prompt: Prompt, rollout: Rollout | None = None) -> RewardInput:
        columns = seen_columns(self._entries[r], self._pool.traits[r], prompt.columns)
        if rollout is None:
            return RewardInput(messages=prompt.messages, columns=columns, text="")
        return RewardInput(messages=prompt.messages, columns=columns, text=rollout.text, finish=rollout.finish)

    # --- results ----------------------------------------------------------------------------------------------------

    def _take(self, results: Sequence[Result], *, news: bool) -> None:
        """Book them. ``news``: some are what another thread waits for, which is asleep in the pool."""
        with self._lock:
            for result in results:
                if result.task.call is Call.CHECK:
                    self._checked[result.task.task_id] = result
                else:
                    self._take_scores(result)
            if news:
                self._pool.nudge()
            if self._stopped:
                raise RewardBudgetError(self._stopped)
            self._tally.check_budget()

    def _take_scores(self, result: Result) -> None:
        task_id, r = result.task.task_id, result.task.reward
        key = self._keys.pop(task_id, None)
        if key is None:
            return  # cancelled meanwhile
        group, entry = self._open[key], self._entries[r]
        if result.trace:
            self._faults.note(entry.name, row=group.row, reason=str(result.complaint), trace=result.trace, text=result.task.items[0].text)
        if group.counted:
            self._tally.verdict(entry.name, result.scores, result.seconds)
        for place, score in zip(group.missing.pop(task_id), result.scores, strict=True):
            group.verdicts[r][place] = self._by_policy(entry, score, group)
        if not group.missing:
            self._close_group(key, group)

    def _by_policy(self, entry: RewardEntry, score: Score, group: _Open) -> Score:
        """The score as the entry's policy has it: as it is, masked, or noted as the end of the run."""
        action, outcome = entry.action(score.outcome), score.outcome.value
        if action == "stop" and group.counted and not self._stopped:
            self._stopped = (
                f"reward {entry.name} ended with {outcome} on a response to {group.row} ({score.reason or 'no reason given'}), and its "
                f'policy {outcome} = "stop" ends the run; mend the reward or its data, or write {outcome} = "mask" in policy of its '
                "[[rewards]]"
            )
        return replace(score, in_statistics=False, in_loss=False) if action == "mask" else score

    def _close_group(self, key: int, group: _Open) -> None:
        del self._open[key]
        scores = tuple(self._mixed(group, place) for place in range(group.size))
        if group.counted:
            self._tally.mixed(scores)
        self._finished.append((key, scores))

    def _mixed(self, group: _Open, place: int) -> Score:
        verdicts = []
        for r in group.rewards:
            score = group.verdicts[r][place]
            assert score is not None
            verdicts.append((self._entries[r].name, self._entries[r].weight, score))
        return mix(verdicts)

    def _complain(self, bad: Sequence[tuple[Prompt, int, Result]]) -> DataError | InfrastructureError:
        for prompt, r, result in bad:
            if result.failure is Outcome.INFRA:
                where = prompt.source or prompt.prompt_id
                return InfrastructureError(f"reward {self._entries[r].name} could not check {where}, twice: {result.complaint}")
        named = "; ".join(
            f"{prompt.source or prompt.prompt_id}: reward {self._entries[r].name} cannot judge this row: {result.complaint}"
            for prompt, r, result in bad[:_NAMED_ROWS]
        )
        more = len(bad) - _NAMED_ROWS
        return DataError(f"{named}; and {more} more rows" if more > 0 else named)
