"""One run of a training backend on each rank of a layout, from ``setup`` to ``close``, and the records that each rank keeps of it.

Processes take seconds to start, so those of one count make the runs of all their layouts, one after the other. The rules read the notes.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RlcoreError, RunError
from rlcore.contracts.interfaces import ModelRole, Objective, PendingSave, TrainingBackend, TrainingContext
from rlcore.registry.targets import load_target
from rlcore.testing.training.rank_processes import next_rendezvous
from rlcore.testing.training.star_ranks import StarRanks
from rlcore.testing.weights import handed_out

__all__ = ["LAYOUTS", "BucketNote", "LayoutRun", "Notes", "RankLayout", "Script", "run_here", "run_layouts"]


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """``ranks`` processes whose context has ``settings``. ``needs``: the ``TrainingCapabilities.layouts`` that a backend must declare."""

    name: str
    ranks: int
    needs: frozenset[str]
    settings: Mapping[str, int] = field(default_factory=dict)

    @property
    def replicas(self) -> int:
        """Ranks among which a batch is shared out: zero splits replicas, the other layouts split within one."""
        inside = ("tensor_parallel", "pipeline_parallel", "context_parallel")
        return self.ranks // math.prod(self.settings.get(name, 1) for name in inside)


def _layout(name: str, ranks: int, needs: str, **settings: int) -> RankLayout:
    return RankLayout(name=name, ranks=ranks, needs=frozenset(needs.split()), settings=settings)


LAYOUTS = (
    _layout("single", 1, "single"),
    _layout("data 2", 2, "data"),
    *(_layout(f"zero {stage}, data 2", 2, "data zero", zero_stage=stage) for stage in (1, 2, 3)),
    _layout("tensor 2", 2, "tensor", tensor_parallel=2),
    _layout("pipeline 2", 2, "pipeline", pipeline_parallel=2),
    _layout("context 2", 2, "context", context_parallel=2),
    _layout("data 4", 4, "data"),
    _layout("zero 3, data 4", 4, "data zero", zero_stage=3),
    _layout("data 2 x tensor 2", 4, "data tensor", tensor_parallel=2),
    _layout("zero 2, data 2 x tensor 2", 4, "data zero tensor", zero_stage=2, tensor_parallel=2),
    _layout("zero 3, data 2 x tensor 2", 4, "data zero tensor", zero_stage=3, tensor_parallel=2),
    _layout("tensor 2 x pipeline 2", 4, "tensor pipeline", tensor_parallel=2, pipeline_parallel=2),
    _layout("data 2 x pipeline 2", 4, "data pipeline", pipeline_parallel=2),
    _layout("zero 1, data 2 x tensor 2", 4, "data zero tensor", zero_stage=1, tensor_parallel=2),
    _layout("zero 1, data 2 x pipeline 2", 4, "data zero pipeline", zero_stage=1, pipeline_parallel=2),
)
"""The layouts that the rules try, if a backend declares them. Expert parallelism needs a model with experts, and has no layout here."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """The batches of a run. ``steps``: three, with a share for each place, a share for the first place alone, and one for the last place
    alone. ``masked`` and ``bad``: batches that no rank takes a step on. ``after``: the step after these, shared out like the first."""

    steps: tuple[TrainBatch, TrainBatch, TrainBatch]
    masked: TrainBatch
    bad: tuple[TrainBatch, TrainBatch]
    after: TrainBatch
    objective: Objective


@dataclass(frozen=True, kw_only=True)
class LayoutRun:
    """One run of all ranks of a layout, and its backend (``target``, called with the context, and with ``options`` if there are any).
    ``what`` is unique within a layout; ``model`` is a name of ``TrainerSuite.models``.

    "plain": the three steps and the one after. "whole": the same and every check, with a masked batch and two bad ones before the last
    step, and a checkpoint in ``folder``. "resumed": the last step alone, from the checkpoint in ``folder``.
    """

    kind: Literal["plain", "whole", "resumed"]
    layout: RankLayout
    what: str
    model: str
    target: str
    options: Any
    context: TrainingContext
    script: Script
    folder: str


@dataclass(frozen=True, kw_only=True)
class BucketNote:
    """The bytes of the fullest bucket of more than one tensor if ``allowed`` bytes were allowed, and the bytes of all buckets."""

    allowed: int
    fullest: int
    total: int


@dataclass(kw_only=True)
class Notes:
    """The findings of one rank in one run. Weights are as they are handed out: all of them on rank 0, on others as many as they have."""

    failed: str = ""
    place: tuple[int, int] = (0, 1)
    before: dict[str, np.ndarray] = field(default_factory=dict)
    buckets: list[BucketNote] = field(default_factory=list)
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The rollouts of the first step that were this rank's share."""
    logprobs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    reference: np.ndarray = field(default_factory=lambda: np.zeros(0))
    entropies: np.ndarray | None = None
    """None if the backend computes none."""
    metrics: list[Mapping[str, float]] = field(default_factory=list)
    trained: dict[str, np.ndarray] = field(default_factory=dict)
    """After the three steps."""
    not_taken: list[tuple[Mapping[str, float], list[str]]] = field(default_factory=list)
    """Of the masked batch and of each bad one: the metrics, and the tensors that it changed."""
    held: dict[str, np.ndarray] = field(default_factory=dict)
    """When the checkpoint was made."""
    saved: dict[str, int] = field(default_factory=dict)
    """Files of the checkpoint and their sizes as this rank found them when saving had ended for it."""
    last: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the step after."""
    after: dict[str, np.ndarray] = field(default_factory=dict)
    reference_after: np.ndarray = field(default_factory=lambda: np.zeros(0))
    synced: list[np.ndarray] = field(default_factory=list)
    """Log probabilities of policy and reference after ``sync_reference``; empty if the backend has none."""
    probed: np.ndarray = field(default_factory=lambda: np.zeros(0))
    gathered: list[np.ndarray] = field(default_factory=list)


_FAILED = -1


class _Barrier:
    """A barrier of all processes between the runs, and inside a run if the backend has none there. A rank whose run fails reports it at the
    next meeting, which is then the last one of the run for all ranks."""

    def __init__(self, ranks: StarRanks) -> None:
        self.ranks = ranks
        self.over = False

    def meet(self, *values: int) -> list[list[int]]:
        """Return the values of every rank; RunError if a rank reported that it failed."""
        came = [list(map(int, part)) for part in self.ranks.gather(np.array(values, np.int64))]
        if lost := [rank for rank, said in enumerate(came) if said == [_FAILED]]:
            self.over = True
            raise RunError(f"rank {lost[0]} failed")
        return came


def run_layouts(rank: int, size: int, rendezvous: str, runs: Sequence[LayoutRun], deadline: float) -> list[Notes]:
    """Make all runs, one after the other, in one process a rank. A run that fails on one rank ends its layout on all of them."""
    notes: list[Notes] = []
    lost: set[str] = set()
    with closing(StarRanks(rank, size, rendezvous, deadline)) as ranks:
        for run in runs:
            if run.layout.name in lost:
                notes.append(Notes(failed="an earlier run of the layout failed"))
                continue
            own = replace(run.context, rank=rank, world_size=size, rendezvous=next_rendezvous(ranks))
            notes.append(_recorded(run, own, _Barrier(ranks)))
            if notes[-1].failed:
                lost.add(run.layout.name)
    return notes


def run_here(run: LayoutRun) -> Notes:
    """Make a run of one rank in this process."""
    return _recorded(run, run.context, _Barrier(StarRanks(0, 1, "")))


def _recorded(run: LayoutRun, context: TrainingContext, barrier: _Barrier) -> Notes:
    notes = Notes()
    try:
        _attempt(run, context, barrier, notes)
        barrier.meet()
    except RlcoreError as error:
        notes.failed = f"{type(error).__name__}: {error}"
    except Exception:
        notes.failed = traceback.format_exc()[-1500:]
    if notes.failed and not barrier.over:
        with suppress(RunError):  # which says that this rank failed
            barrier.meet(_FAILED)
    return notes


def _attempt(run: LayoutRun, context: TrainingContext, barrier: _Barrier, notes: Notes) -> None:
    arguments = (context,) if run.options is None else (context, run.options)
    backend: TrainingBackend = load_target(run.target, f"the backend {run.target!r}")(*arguments)
    try:
        backend.setup(context)
        if run.kind == "plain":
            _plain(backend, run, notes)
        elif run.kind == "whole":
            _whole(backend, run, notes, barrier)
        else:
            _resumed(backend, run, notes)
    finally:
        backend.close()


def _plain(backend: TrainingBackend, run: LayoutRun, notes: Notes) -> None:
    _three_steps(backend, run, notes)
    _step_after(backend, run, notes)


def _sync(backend: TrainingBackend, run: LayoutRun, notes: Notes) -> None:
    """Make the reference the policy, in two moves, if the backend can do so and has no adapters."""
    if backend.capabilities.syncs_reference and run.context.lora is None:
        for share in (0.5, 1.0):
            backend.sync_reference(share)
        first = run.script.steps[0].take(notes.rows)
        notes.synced = [backend.logprobs(first, which) for which in (ModelRole.POLICY, ModelRole.REFERENCE)]


def _three_steps(backend: TrainingBackend, run: LayoutRun, notes: Notes) -> None:
    script, place = run.script, backend.data_parallel
    notes.place, notes.before, notes.rows = place, _arrays(backend), _rows(script.steps[0], 0, place)
    first = script.steps[0].take(notes.rows)
    notes.logprobs, notes.reference = (backend.logprobs(first, which) for which in (ModelRole.POLICY, ModelRole.REFERENCE))
    if backend.capabilities.entropies:
        notes.entropies = backend.logprobs_and_entropies(first)[1]
    notes.metrics = [backend.update(share, script.objective) for share in _shares(script.steps, place)]
    notes.trained = _arrays(backend)
    segment = script.after.rollouts[0].segments[0]
    notes.probed = backend.probe(np.concatenate([segment.context_ids, segment.token_ids]))


def _whole(backend: TrainingBackend, run: LayoutRun, notes: Notes, barrier: _Barrier) -> None:
    _three_steps(backend, run, notes)
    script, place = run.script, notes.place
    sizes = [array.nbytes for array in notes.before.values()]
    total, largest = np.max(barrier.meet(sum(sizes), max(sizes, default=0)), axis=0)  # a rank may have none
    notes.buckets = [_bucket_note(backend, int(most)) for most in (1, largest + 1, (total + largest) // 2)]
    for batch in (script.masked, *script.bad):
        held = _arrays(backend)
        metrics = backend.update(batch.take(_rows(batch, 0, place)), script.objective)
        now = _arrays(backend)
        notes.not_taken.append((metrics, [name for name, array in held.items() if array.tobytes() != now[name].tobytes()]))
    notes.held = _arrays(backend)
    notes.saved = _save(backend, Path(run.folder), barrier)
    notes.gathered = backend.gather(np.arange(3 * place[0], dtype=np.float32))
    _step_after(backend, run, notes)
    notes.reference_after = backend.logprobs(script.steps[0].take(notes.rows), ModelRole.REFERENCE)
    _sync(backend, run, notes)


def _resumed(backend: TrainingBackend, run: LayoutRun, notes: Notes) -> None:
    backend.load(Path(run.folder) / "state")
    notes.place, notes.before = backend.data_parallel, _arrays(backend)
    _step_after(backend, run, notes)


def _step_after(backend: TrainingBackend, run: LayoutRun, notes: Notes) -> None:
    batch = run.script.after
    notes.last = backend.update(batch.take(_rows(batch, 0, backend.data_parallel)), run.script.objective)
    notes.after = _arrays(backend)


def _shares(steps: Sequence[TrainBatch], place: tuple[int, int]) -> Iterable[TrainBatch]:
    return (batch.take(_rows(batch, number, place)) for number, batch in enumerate(steps))


def _rows(batch: TrainBatch, number: int, place: tuple[int, int]) -> np.ndarray:
    """Return the rows of this place, in whole groups: of step 0 each place has some, of step 1 the first place has all, of step 2 the last
    one."""
    owners = {0: batch.group % place[1], 1: np.zeros_like(batch.group), 2: np.full_like(batch.group, place[1] - 1)}
    return np.flatnonzero(owners[number] == place[0])


def _arrays(backend: TrainingBackend) -> dict[str, np.ndarray]:
    """Return copies of the weights in the precision that they are handed out in."""
    return {name: np.array(tensor.data) for name, tensor in handed_out(backend).items()}


def _bucket_note(backend: TrainingBackend, allowed: int) -> BucketNote:
    source = backend.weight_source()
    bytes_of = {info.name: info.nbytes for info in source.manifest().tensors}
    held = [[bytes_of[name] for name in bucket] for bucket in source.buckets(allowed)]
    several = [sum(sizes) for sizes in held if len(sizes) > 1]
    return BucketNote(allowed=allowed, fullest=max(several, default=0), total=sum(map(sum, held)))


def _save(backend: TrainingBackend, folder: Path, barrier: _Barrier) -> dict[str, int]:
    """Save both halves of a checkpoint; return the files that this rank found of each when saving returned. All ranks wait for one that
    still writes."""
    writing: list[PendingSave] = []
    found: dict[str, int] = {}
    for name, write in (("model", backend.save_model), ("state", backend.save)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        saving = write(folder / name)
        writing += [] if saving is None else [saving]
        found |= _found(folder / name)
    if np.any(barrier.meet(len(writing))):
        for saving in writing:
            saving.result()
        barrier.meet()
        found = _found(folder / "model") | _found(folder / "state")
    return found


def _found(folder: Path) -> dict[str, int]:
    return {f"{folder.name}/{path.relative_to(folder)}": path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
