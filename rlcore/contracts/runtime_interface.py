"""What the loop of a run asks of its workers, wherever they are: in this process, or as actors on a cluster.

The loop (``training_run.py``) owns the run folder, the listeners and the order of events; a crew owns the roles. One thread calls it.
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
from rlcore.contracts.specs import RuntimeSpec

if TYPE_CHECKING:
    from rlcore.contracts.interfaces import PendingSave, Tokenizer
    from rlcore.contracts.types import Group

__all__ = ["Admission", "FilterReport", "Interrupt", "Runtime", "Status", "TaskReport", "TimeReport", "Update", "WaitingFor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update, trained, and its weights on their way: the version that it made, its figures, the rows of the rollout log where they
    were asked for. ``times``: worker -> category -> seconds of this step, as far as they are known."""

    version: int
    figures: Mapping[str, float]
    rollouts: tuple[Mapping[str, Any], ...] = ()
    times: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task at one version: means over the judged completions, None where nothing gave the figure; ``failed``: how many others there
    are; a row a completion. ``at_k``: ``low`` and ``high`` of the accuracy, with several completions a prompt ``pass@k`` and ``maj@k``,
    each with ``/low`` and ``/high``; ``length`` and ``truncated`` of all completions."""

    task: str
    accuracy: float | None
    reward: float | None
    rows: tuple[Mapping[str, Any], ...]
    failed: int = 0
    at_k: Mapping[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """By the names that they have in ``metrics.jsonl``."""
        known = {"": self.accuracy, "/reward": self.reward, "/failed": float(self.failed) or None}
        named = {**known, **{f"/{name}": figure for name, figure in self.at_k.items()}}
        return {f"eval/{self.task}{name}": figure for name, figure in named.items() if figure is not None}


class WaitingFor(StrEnum):
    """Why ``next_batch`` gives nothing."""

    NOTHING = "nothing"
    """It would give a batch now."""
    GROUPS = "groups"
    """Too few groups are ready."""
    STRAGGLERS = "stragglers"
    """Enough are ready, but leaving without those in flight would push one of them over the staleness bound."""
    UPDATE = "update"
    """A batch is being trained."""
    END = "end"
    """The run is finished."""


class Admission(StrEnum):
    """Whether ``lease`` would grant something, or what forbids it."""

    OPEN = "open"
    STALENESS = "staleness"
    """More would be older than allowed when their turn comes: producers wait for the trainer."""
    BUFFER = "buffer"
    """As many groups are in flight and ready as the buffer may hold: back-pressure."""
    EXHAUSTED = "exhausted"
    """No prompt is left to ask for, unless one is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where the schedule stands. Groups: ``in_flight`` leased, ``buffered`` ready, ``taken`` in the batch being trained, ``set_aside``
    those of a void batch (ready, but outside the buffer's bound until the next batch); prompts: ``given_back`` wait for a new lease.
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


class FilterReport(Protocol):
    """What the group filter saw in the whole run; ``rlcore.api.runtime.FilterMonitor`` is one."""

    def figures(self) -> dict[str, float]:
        """Return the figures for the summary; {} without a filter."""

    def remark(self) -> str:
        """Return a sentence for the end of a run that lost most of its groups to the filter; "" for any other run."""

    def nothing_trained(self, filtered: int, failed: int) -> str:
        """Return the sentence that ends a run whose prompts were all filtered or failed."""


class TimeReport(Protocol):
    """Where the seconds since ``Runtime.start_clock`` went; ``rlcore.api.runtime.Timing`` is one. ``peaks``: worker -> bytes of its
    process at their most."""

    seconds: float
    by_activity: dict[str, float]
    peaks: dict[str, int]

    def shares(self) -> dict[str, float]:
        """Return the shares of the time for the summary."""

    def workers(self) -> dict[str, dict[str, float]]:
        """Return worker -> category -> seconds."""

    def rows(self) -> list[tuple[str, str, str, float, float]]:
        """Return the rows of the trace: worker, role, activity, start since 1970, seconds."""


class Interrupt:
    """Says whether somebody asked the run to end. The loop calls ``wakes`` at that moment, for a crew that waits for something else."""

    def __init__(self) -> None:
        self.requested = False
        self.wakes: list[Callable[[], None]] = []

    def end(self, error: BaseException) -> bool:
        """Raise ``error`` in the thread that runs the loop, whatever it waits for. Return False if that thread cannot be reached."""
        return False


class Runtime(FromSpec, ABC, described_by=RuntimeSpec):
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
    def save(self, folder: Path) -> PendingSave | None:
        """Write ``model/`` and ``trainer/`` below an existing folder; what it returns is done when they are written, None: now."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """JSON values for a checkpoint, as the last update left them: ``coordinator`` and ``watch`` (``Coordinator.state``,
        ``FilterMonitor.state``), and what else a crew goes on with. The next run gets them as ``plan.resume.state``."""

    @abstractmethod
    def status(self) -> Status:
        """Where the schedule stands."""

    @abstractmethod
    def watch(self) -> FilterReport:
        """What the group filter saw."""

    @abstractmethod
    def start_clock(self) -> None:
        """From here on seconds count; what was booked before (start, first evaluation) does not."""

    @abstractmethod
    def timing(self) -> TimeReport:
        """Where the seconds since ``start_clock`` went."""

    @abstractmethod
    def stop(self) -> None:
        """No further batch is wanted; producers end what they do."""
