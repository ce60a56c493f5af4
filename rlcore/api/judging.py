"""Judging without a run, for commands that ask rewards about texts as a run would.

``reward_entries(plan)`` returns the rewards of a plan. A subclass of ``RewardMixer`` owns their worker processes. It makes tasks of texts
(``check_task``, ``score_tasks``) and submits them to its ``pool``. It stores each ``Result`` in its ``PendingScores``, and mixes the
scores as a run does (``mixed``). It is a context manager; its owner may also call ``close``.

>>> class Scorer(RewardMixer[PendingScores]):
...     def score(self, texts):
...         case = PendingScores(rewards=self.routes(None))
...         items = {place: RewardInput(messages=(), columns={}, text=text) for place, text in enumerate(texts)}
...         self.pool.submit([task for r in case.rewards for task in self.score_tasks(case, r, items)])
...         while case.missing:
...             for result in self.pool.poll(1.0):
...                 for place, score in zip(case.missing.pop(result.task.task_id), result.scores):
...                     case.scores[result.task.reward, place] = score
...         return [self.mixed(case, place) for place in items]
"""

from __future__ import annotations

from rlcore.rewards.reward_entry import RewardEntry, reward_entries
from rlcore.rewards.reward_mixer import PendingScores, RewardMixer
from rlcore.rewards.task_queue import Result
from rlcore.rewards.worker_protocol import Task

__all__ = ["PendingScores", "Result", "RewardEntry", "RewardMixer", "Task", "reward_entries"]
