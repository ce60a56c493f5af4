"""Evaluations over several producers: each takes a share of the jobs; what they made counts only where one version made all of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlcore.api.runtime import Evaluation, Evaluator, Produced, TaskReport
from rlcore_plugin_workers.driver_inbox import DriverInbox
from rlcore_plugin_workers.producer_team import ProducerTeam
from rlcore_plugin_workers.workers import WorkerDiedError

__all__ = ["Evaluations"]

_AGAIN_SECONDS = 0.5
"""Until an evaluation is dealt again after a death, so that the deaths of several at a time cost one beginning."""


class Evaluations:
    """One at a time, in the order of the versions that were asked for. For the driver's thread.

    Each is made by the first version that is asked for, or by a newer one, and answers all requests up to its version, later ones
    included: a second one would use the same weights and write the same rows twice.
    """

    def __init__(self, evaluator: Evaluator, team: ProducerTeam, inbox: DriverInbox) -> None:
        self._evaluator = evaluator
        self._team = team
        self._inbox = inbox
        self._wanted: list[int] = []
        """The versions that are asked for and not evaluated."""
        self._made = -1
        """The newest version that was evaluated."""
        self._under_way: Evaluation | None = None
        self._attempt = 0
        self._shares = 0
        self._answers: list[tuple[int, list[Produced]]] = []
        self._next_key = -1
        self._reports: list[tuple[int, list[TaskReport]]] = []

    def start(self, step: int) -> None:
        """Ask for an evaluation with the weights of this version or newer."""
        if step > self._made:
            self._wanted.append(step)
        if self._wanted and self._under_way is None:
            self._send(spread=True)

    def take(self, *, wait: bool) -> list[tuple[int, list[TaskReport]]]:
        """(version, reports) of those that are complete; with ``wait``, of all."""
        if wait:
            self.finish()
        else:
            self._inbox.drain()
        reports, self._reports = self._reports, []
        return reports

    def finish(self) -> None:
        """Wait until all are complete."""
        self._inbox.until(lambda: not self._wanted)

    def _send(self, *, spread: bool) -> None:
        """Deal the jobs to all producers, or to the first one, which cannot disagree with itself."""
        workers = self._team.serving if spread else self._team.serving[:1]
        self._attempt += 1
        if not workers:  # all of them are being replaced
            self._inbox.after(_AGAIN_SECONDS, partial(self._again, self._attempt))
            return
        self._answers = []
        self._under_way = self._evaluator.start(self._next_key)
        jobs = self._under_way.jobs
        self._next_key -= len(jobs)
        shares = [jobs[number :: len(workers)] for number in range(len(workers))]
        dealt = [(worker, share) for worker, share in zip(workers, shares, strict=True) if share]
        self._shares = len(dealt)
        for worker, share in dealt:
            self._inbox.watch(self._team.evaluate(worker, share, self._wanted[0]), partial(self._arrived, self._attempt))

    def _arrived(self, attempt: int, value: Any, error: BaseException | None) -> None:
        if attempt != self._attempt:
            return
        if error is None:
            self._answers.append(value)
            if len(self._answers) == self._shares:
                self._finish()
        elif isinstance(error, WorkerDiedError):
            # What the dead one had is made again, and the rest with it: weights may have changed meanwhile.
            self._inbox.after(_AGAIN_SECONDS, partial(self._again, attempt))
        else:
            raise error

    def _again(self, attempt: int) -> None:
        """A producer died in this attempt; those who live then take it up, once there is one."""
        if attempt == self._attempt:
            self._send(spread=True)

    def _finish(self) -> None:
        versions = {version for version, _ in self._answers}
        if len(versions) > 1:
            self._send(spread=False)
            return
        evaluation = self._under_way
        assert evaluation is not None
        version = max(versions, default=self._wanted[0])
        self._reports.append((version, evaluation.reports(produced for _, results in self._answers for produced in results)))
        self._made, self._under_way = max(self._made, version), None
        self._wanted = [wanted for wanted in self._wanted if wanted > version]
        if self._wanted:
            self._send(spread=True)
