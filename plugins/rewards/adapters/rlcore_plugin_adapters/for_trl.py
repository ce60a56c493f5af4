"""A reward of rlcore as a reward function of TRL. Worker processes judge, and are killed at the deadline, as in a run of rlcore."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcore.api import ConfigError, DataError, FinishReason, Message, PluginKind, RewardInput, Score
from rlcore.api.commands import Registry, plan_run
from rlcore.api.judging import PendingScores, RewardEntry, RewardMixer, Task, reward_entries

__all__ = ["RewardOfRlcore", "entries_of"]

_LOG = logging.getLogger(__name__)
_WAIT_SECONDS = 1.0


def entries_of(rewards: Sequence[Mapping[str, Any]]) -> tuple[RewardEntry, ...]:
    """Return the rewards as the engine runs them, with their options checked; see ``rlcore_plugin_adapters.trl``."""
    if not rewards:
        raise ConfigError("the list contains no reward; name one, for example trl('boxed')")
    if nameless := next((reward for reward in rewards if "name" not in reward), None):
        raise ConfigError(f"a reward of the list has no name: {nameless!r}; write {{'name': 'boxed', …}}")
    registry = Registry.discover()
    chosen = [{**reward, "name": registry.add(PluginKind.REWARD, reward["name"])} for reward in rewards]
    return reward_entries(plan_run([], {}, registry, overrides={"rewards": chosen}, require=False))


class RewardOfRlcore(RewardMixer[PendingScores]):
    """A reward function that TRL can call. A response without a verdict (deadline, error, machine) gets None, TRL's value for no reward,
    never 0. The number of such responses is logged and passed to ``log_metric``. If the reward cannot judge a row, the first call with that
    row raises DataError.

    The workers start with the first call, and end with ``close`` or the process.
    """

    def __init__(self, entries: Sequence[RewardEntry], columns: Mapping[str, str], workers: int, length_limit: int | None) -> None:
        self.__name__ = "+".join(entry.name for entry in entries)
        self._given, self._names, self._workers, self._length_limit = entries, dict(columns), workers, length_limit
        self._started = False
        self._checked: set[bytes] = set()

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any] | None = None, **given: Any
    ) -> list[float | None]:
        """Return one number, or None, for each completion."""
        if not self._started:
            super().__init__(self._given, workers=self._workers)
            self._started = True
        columns = {name: values for name, values in given.items() if isinstance(values, list | tuple) and len(values) == len(prompts)}
        items = [self._item(place, prompts, completions, completion_ids, columns) for place in range(len(prompts))]
        self._check_columns(items)
        scores = self._judged(items)
        self._tell(scores, given.get("log_metric"))
        return [score.value if score.outcome.judged and score.in_loss else None for score in scores]

    def close(self) -> None:
        """End the workers. May be called twice, and before the first call."""
        if self._started:
            super().close()

    def _item(
        self,
        place: int,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        ids: Sequence[Any] | None,
        columns: Mapping[str, Sequence[Any]],
    ) -> RewardInput:
        row = {name: values[place] for name, values in columns.items()}
        row |= {ours: row[theirs] for ours, theirs in self._names.items() if theirs in row}
        turns = tuple(_messages(completions[place], "assistant", policy=True))
        texts = [turn.content for turn in turns if turn.policy]
        cut = self._length_limit is not None and ids is not None and len(ids[place]) >= self._length_limit
        return RewardInput(
            messages=tuple(_messages(prompts[place], "user")),
            columns=row,
            text=texts[-1] if texts else "",
            finish=FinishReason.LENGTH if cut else FinishReason.STOP,
            turns=turns,
        )

    def _check_columns(self, items: Sequence[RewardInput]) -> None:
        """Raise DataError if a required column is missing. Otherwise the reward would raise for every response, and train nothing."""
        needed = {name: entry.name for entry in self._given for name in entry.spec.requires} if items else {}
        for name, reward in needed.items():
            if name not in (has := items[0].columns):
                raise DataError(
                    f'the data set has no column "{name}", which reward {reward} needs (it has {", ".join(has) or "none"}); '
                    f'give its name there: columns={{"{name}": "…"}}'
                )

    def _judged(self, items: Sequence[RewardInput]) -> list[Score]:
        """Return scores in order. Completions of one prompt are adjacent, so a group-level reward gets those of a prompt together."""
        case = PendingScores(rewards=self.routes(None))
        checks: dict[int, bytes] = {}
        tasks = [task for first, group in _groups(items) for r in case.rewards for task in self._tasks(case, checks, r, first, group)]
        self.pool.submit(tasks)
        wanted = set(case.missing)
        while wanted:
            for result in self.pool.poll(_WAIT_SECONDS):
                if result.task.task_id not in wanted:
                    continue  # of a call that was interrupted
                wanted.discard(result.task.task_id)
                if result.task.task_id in checks and result.complaint is not None:
                    self.pool.cancel(wanted)
                    raise DataError(
                        f"reward {self.entries[result.task.reward].name} cannot judge the row {_shown(result.task)}: {result.complaint}"
                    )
                self._checked.update(checks[task] for task in (result.task.task_id,) if task in checks)
                for place, score in zip(case.missing[result.task.task_id], result.scores, strict=False):
                    case.scores[result.task.reward, place] = score
        return [self.mixed(case, place) for place in range(len(items))]

    def _tasks(self, case: PendingScores, checks: dict[int, bytes], r: int, first: int, group: Sequence[RewardInput]) -> Iterator[Task]:
        group = [replace(item, columns=self.declared_columns(r, item.columns)) for item in group]
        key = hashlib.sha256(json.dumps([r, dict(group[0].columns)], sort_keys=True, default=repr).encode()).digest()
        if self.pool.traits[r].checks and key not in self._checked:
            check = self.check_task(r, group[0])
            case.missing[check.task_id], checks[check.task_id] = (), key
            yield check
        yield from self.score_tasks(case, r, {first + number: item for number, item in enumerate(group)})

    def _tell(self, scores: Sequence[Score], log_metric: Callable[[str, float], None] | None) -> None:
        failed = [score for score in scores if not score.outcome.judged]
        if failed:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in Counter(score.outcome.value for score in failed).items())
            text = "reward %s: %d of %d responses have no verdict (%s) and do not train; the first: %s"
            _LOG.warning(text, self.__name__, len(failed), len(scores), counts, failed[0].reason)
        if log_metric is not None and scores:
            log_metric(f"{self.__name__}/no_verdict", len(failed) / len(scores))


def _groups(items: Sequence[RewardInput]) -> Iterator[tuple[int, Sequence[RewardInput]]]:
    first = 0
    for place in range(1, len(items) + 1):
        if place == len(items) or (items[place].messages, items[place].columns) != (items[first].messages, items[first].columns):
            yield first, items[first:place]
            first = place


def _messages(said: Any, role: str, *, policy: bool = False) -> Iterator[Message]:
    """Yield the messages of a text, or of a list of messages, from TRL. ``policy``: the assistant's messages in it are the policy's."""
    if isinstance(said, str):
        said = [{"role": role, "content": said}]
    for message in said:
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "".join(part.get("text") or "" for part in content)
        yield Message(role=message["role"], content=content, policy=policy and message["role"] == "assistant")


def _shown(task: Task) -> str:
    return json.dumps(dict(task.items[0].columns), ensure_ascii=False, default=repr)[:200]
