"""What the loop of a run asks of its workers, wherever they are: in this process, or as actors on a cluster.

The loop (``training_run.py``) owns the run folder, the listeners and the order of events; a crew owns the roles. One thread calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.contracts.interfaces import Saving, Tokenizer
    from rlcore.contracts.types import Group
    from rlcore.roles.evaluator import TaskReport
    from rlcore.runtime.interrupt import Interrupt
    from rlcore.runtime.starvation import FilterWatch
    from rlcore.runtime.timing import Timing
    from rlcore.schedule import Status

__all__ = ["Crew", "Update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update, trained, and its weights on their way: the version that it made, its figures, the rows of the rollout log where they
    were asked for. ``times``: worker -> category -> seconds of this step, as far as they are known."""

    version: int
    figures: Mapping[str, float]
    rollouts: tuple[Mapping[str, Any], ...] = ()
    times: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Crew(ABC):
    """The workers of one run. Errors are RlcoreErrors; whatever was started ends with the ExitStack that the crew was built with.

    ``horizon``: the updates that are planned; ``fingerprints``: of data sets and tokenizer, by name (``loading.fingerprints``);
    ``prompts``: how many there are to train on, 0 if that is not known;
    ``dropped``: prompts that were too long and are left out, by data set (``Texts.dropped``); ``loop_role``: whose profile that of the
    loop's thread is. If the plan says from where a run goes on (``plan.resume``), weights, schedule and filter watch begin there.
    """

    loop_role = "trainer"

    horizon: int
    fingerprints: Mapping[str, str]
    prompts: int = 0
    dropped: Mapping[str, int] = MappingProxyType({})
    tokenizer: Tokenizer

    @abstractmethod
    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        """The run folder exists: hand out the weights that the run begins with. A batch is waited for only until ``interrupt`` is
        requested."""

    @abstractmethod
    def next_batch(self) -> bool:
        """Wait for the groups of the next update; False at the end of the run, or where it is interrupted before they are there."""

    @abstractmethod
    def train(self, *, log_rollouts: bool) -> Update:
        """Train on that batch and publish the new weights."""

    @abstractmethod
    def evaluate(self, step: int) -> None:
        """Have the held-out tasks evaluated with the newest weights; the reports come by ``take_evaluations``."""

    @abstractmethod
    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        """(step, reports) of the evaluations that are complete; with ``wait``, of all that were asked for."""

    @abstractmethod
    def take_scored(self) -> Sequence[Group]:
        """The groups that were scored since the last call, for observers; a crew far away sends none where nobody observes."""

    @abstractmethod
    def take_failures(self) -> list[dict[str, Any]]:
        """The prompts that failed since the last call: ``prompt_id``, ``episode``, ``reason``, and the ``step`` (from 1) that was awaited
        or made when they failed. What the schedule has counted when ``state`` returns is among them."""

    @abstractmethod
    def take_reward_faults(self, *, last: bool = False) -> list[dict[str, Any]]:
        """What rewards raised since the last call. ``last``: the run has ended, well or not; what is still on its way is waited for, a
        little, and nothing is raised."""

    @abstractmethod
    def remarks(self) -> list[str]:
        """What of the whole run a person should read at its end, the filter aside."""

    @abstractmethod
    def save(self, folder: Path) -> Saving | None:
        """Write ``model/`` and ``trainer/`` below an existing folder; what it returns is done when they are written, None: now."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """JSON values for a checkpoint, as the last update left them: ``coordinator`` and ``watch`` (``Coordinator.state``,
        ``FilterWatch.state``), and what else a crew goes on with. The next run gets them as ``plan.resume.state``."""

    @abstractmethod
    def status(self) -> Status:
        """Where the schedule stands."""

    @abstractmethod
    def watch(self) -> FilterWatch:
        """What the group filter saw."""

    @abstractmethod
    def start_clock(self) -> None:
        """From here on seconds count; what was booked before (start, first evaluation) does not."""

    @abstractmethod
    def timing(self) -> Timing:
        """Where the seconds since ``start_clock`` went."""

    @abstractmethod
    def stop(self) -> None:
        """No further batch is wanted; producers end what they do."""
