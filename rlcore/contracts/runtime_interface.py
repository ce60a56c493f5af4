"""The interface between the loop of a run and its workers, in this process or as actors on a cluster.

The loop (``training_run.py``) owns the run folder, the listeners and the order of events. A runtime owns the roles. One thread calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from rlcore.contracts.from_spec import FromSpec
from rlcore.contracts.public_members import EnumMembers
from rlcore.contracts.specs import RuntimeSpec

if TYPE_CHECKING:
    from rlcore.contracts.interfaces import PendingSave, Tokenizer
    from rlcore.contracts.types import Group

__all__ = ["ENVIRONMENT", "Admission", "FilterReport", "Interrupt", "Runtime", "Status", "TaskReport", "TimeReport", "Update", "WaitingFor"]

ENVIRONMENT = "RLCORE_ENVIRONMENT"
"""The variable that names the Python environment, in processes that run in another one than the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One finished update, whose weights are being published.

    ``version``: the policy version that it made. ``figures``: its metrics. ``rollouts``: the rows of the rollout log, if the caller asked
    for them. ``times``: worker -> category -> seconds of this step, for the workers that have reported.
    """

    version: int
    figures: Mapping[str, float]
    rollouts: tuple[Mapping[str, Any], ...] = ()
    times: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The evaluation of one task at one version.

    ``accuracy``, ``reward``: means over the judged completions, None if no completion has the figure.
    ``failed``: the number of completions that were not judged.
    ``rows``: one row for each completion.
    ``at_k``: ``low`` and ``high`` of the accuracy; with several completions a prompt ``pass@k`` and ``maj@k``, each with ``/low`` and
        ``/high``; ``length`` and ``truncated`` over all completions; ``conversation/<name>``.
    """

    task: str
    accuracy: float | None
    reward: float | None
    rows: tuple[Mapping[str, Any], ...]
    failed: int = 0
    at_k: Mapping[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """Return the figures by their names in ``metrics.jsonl``."""
        known = {"": self.accuracy, "/reward": self.reward, "/failed": float(self.failed) or None}
        named = {**known, **{f"/{name}": figure for name, figure in self.at_k.items()}}
        return {f"eval/{self.task}{name}": figure for name, figure in named.items() if figure is not None}


class WaitingFor(StrEnum, metaclass=EnumMembers):
    """The reason why ``next_batch`` returns no batch."""

    NOTHING = "nothing"
    """A batch is available now."""
    GROUPS = "groups"
    """Too few groups are ready."""
    STRAGGLERS = "stragglers"
    """Enough groups are ready, but a batch without those in flight would push one of them over the staleness bound."""
    UPDATE = "update"
    """A batch is being trained."""
    END = "end"
    """The run is finished."""


class Admission(StrEnum):
    """Whether ``lease`` would grant a lease, or the reason why not."""

    OPEN = "open"
    STALENESS = "staleness"
    """Further groups would be older than allowed when they are trained: producers wait for the trainer."""
    BUFFER = "buffer"
    """The groups in flight and ready fill the buffer: back-pressure."""
    EXHAUSTED = "exhausted"
    """No prompt is left, unless a lease is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of the schedule.

    Numbers of groups: ``in_flight`` are leased; ``buffered`` are ready; ``taken`` are in the batch being trained; ``set_aside`` come from a
    void batch (ready, but outside the buffer's bound until the next batch). Number of prompts: ``given_back`` wait for a new lease.
    ``sources``: of a run with several sources, the ledger of each by its name: trained, filtered and failed.
    """

    version: int
    finished: bool
    trained: int
    filtered: int
    failed: int
    buffered: int
    in_flight: int
    taken: int
    set_aside: int
    given_back: int
    waiting_for: WaitingFor
    admission: Admission
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class FilterReport(Protocol):
    """The group filter's statistics of the whole run; ``rlcore.api.runtime.FilterMonitor`` implements it."""

    def figures(self) -> dict[str, float]:
        """Return the figures for the summary; {} without a filter."""

    def remark(self) -> str:
        """Return a sentence for the end of a run that lost most of its groups to the filter; "" for any other run."""

    def nothing_trained(self, filtered: int, failed: int) -> str:
        """Return the sentence that ends a run whose prompts were all filtered or failed."""


class TimeReport(Protocol):
    """The use of the time since ``Runtime.start_clock``; ``rlcore.api.runtime.Timing`` implements it.

    ``peaks``: worker -> peak memory of its process in bytes.
    """

    seconds: float
    by_activity: dict[str, float]
    peaks: dict[str, int]

    def shares(self) -> dict[str, float]:
        """Return the shares of the time for the summary."""

    def workers(self) -> dict[str, dict[str, float]]:
        """Return worker -> category -> seconds."""

    def rows(self) -> list[tuple[str, str, str, float, float]]:
        """Return the rows of the trace: worker, role, activity, start in seconds since 1970, duration in seconds."""


class Interrupt:
    """A flag that says whether the user asked the run to end.

    The loop calls ``wakes`` at that moment, for a runtime that waits for something else.
    """

    def __init__(self) -> None:
        self.requested = False
        self.wakes: list[Callable[[], None]] = []

    def end(self, error: BaseException) -> bool:
        """Raise ``error`` in the thread that runs the loop, whatever it waits for. Return False if that thread cannot be reached."""
        return False


class Runtime(FromSpec, ABC, described_by=RuntimeSpec):
    """The workers of one run.

    Errors are RlcoreErrors. The ExitStack that the runtime was built with ends everything that was started. If the plan has a resume point
    (``plan.resume``), weights, schedule and filter watch begin there.

    ``horizon``: the number of planned updates.
    ``fingerprints``: of data sets and tokenizer, by name (``loading.fingerprints``).
    ``prompts``: the number of prompts to train on, 0 if it is not known.
    ``dropped``: the number of prompts that are left out because they are too long, by data set (``Texts.dropped``).
    ``loop_role``: the role under which the loop's thread is profiled.
    """

    loop_role = "trainer"

    horizon: int
    fingerprints: Mapping[str, str]
    prompts: int = 0
    dropped: Mapping[str, int] = MappingProxyType({})
    tokenizer: Tokenizer

    @abstractmethod
    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        """Publish the first weights of the run. The loop calls this once the run folder exists.

        Later calls of ``next_batch`` wait only until ``interrupt`` is requested.
        """

    @abstractmethod
    def next_batch(self) -> bool:
        """Wait for the groups of the next update. Return False at the end of the run, or if it is interrupted before they are ready."""

    @abstractmethod
    def train(self, *, log_rollouts: bool) -> Update:
        """Train on that batch and publish the new weights."""

    @abstractmethod
    def evaluate(self, step: int) -> None:
        """Start the evaluation of the held-out tasks with the newest weights; ``take_evaluations`` returns the reports.

        Return once later weights cannot replace them, so that the reports are of ``step``, which the run may have saved."""

    @abstractmethod
    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        """Return (step, reports) of the complete evaluations; with ``wait``, of all that were started."""

    @abstractmethod
    def take_scored(self) -> Sequence[Group]:
        """Return the groups that were scored since the last call, for observers. A remote runtime sends none if no plugin observes them."""

    @abstractmethod
    def take_failures(self) -> list[dict[str, Any]]:
        """Return the prompts that failed since the last call.

        Each has ``prompt_id``, ``episode``, ``reason``, and the ``step`` (from 1) that the run was waiting for or making at that time.
        Every failure that the schedule has counted when ``state`` returns is among them.
        """

    @abstractmethod
    def take_reward_faults(self, *, last: bool = False) -> list[dict[str, Any]]:
        """Return the exceptions of rewards since the last call.

        :param last: the run has ended, successfully or not. The call then waits briefly for faults that are still on their way, and raises
            nothing.
        """

    @abstractmethod
    def remarks(self) -> list[str]:
        """Return the remarks on the whole run that the user should read at its end, except those of the filter."""

    @abstractmethod
    def save(self, folder: Path) -> PendingSave | None:
        """Write ``model/`` and ``trainer/`` below an existing folder.

        The returned ``PendingSave`` is done when both are written; None means that they are written already.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return JSON values for a checkpoint, as of the last update.

        They hold ``coordinator`` and ``watch`` (``Coordinator.state``, ``FilterMonitor.state``), and other state with which the runtime
        resumes. The next run receives them as ``plan.resume.state``.
        """

    @abstractmethod
    def status(self) -> Status:
        """Return the state of the schedule."""

    @abstractmethod
    def watch(self) -> FilterReport:
        """Return the statistics of the group filter."""

    def control(self, after: int, settings: Mapping[str, Any]) -> None:
        """Use these values of settings, which controllers changed, from the update after version ``after``: all that differ from the
        plan, by path. ``Coordinator.control`` and ``Consumer.control`` of every rank do so. The loop calls this before ``begin`` of a
        resumed run, and between two updates. Since 2.0."""
        raise NotImplementedError(f"{type(self).__name__} has no method control, so no setting can change while it trains")

    @abstractmethod
    def start_clock(self) -> None:
        """Start to count seconds here, and discard those recorded before (start, first evaluation)."""

    @abstractmethod
    def timing(self) -> TimeReport:
        """Return the use of the time since ``start_clock``."""

    @abstractmethod
    def stop(self) -> None:
        """Ask for no further batch; producers finish their current work."""
