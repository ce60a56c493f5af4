"""One life of a training backend, from ``setup`` to ``close``, on every rank of a layout, and what each rank writes down of it.

Processes are dear, so those of one count live through the lives of all layouts one after the other; the rules read the notes.
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
from rlcore.testing.rank_processes import next_rendezvous
from rlcore.testing.ranks import StarRanks
from rlcore.testing.weights import handed_out

__all__ = ["LAYOUTS", "BucketNote", "Life", "Notes", "RankLayout", "Script", "live", "live_here"]


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """``ranks`` processes whose context has ``settings``. ``needs``: of ``TrainingCapabilities.layouts``, what a backend must declare."""

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
"""What the rules try, as far as a backend declares it. Expert parallelism needs a model with experts, and has no layout here."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """The batches of a life. ``steps``: three, with a share for each place, a share for the first place alone, and one for the last place
    alone; ``after``: the step that follows what is not a step, shared out like the first."""

    steps: tuple[TrainBatch, TrainBatch, TrainBatch]
    masked: TrainBatch
    bad: tuple[TrainBatch, TrainBatch]
    after: TrainBatch
    objective: Objective


@dataclass(frozen=True, kw_only=True)
class Life:
    """What ranks are to do, and with which backend (``target``, called with the context, and ``options`` if there are any).
    ``what`` is unique within a layout; ``model``: of ``TrainerSuite.models``.

    "plain": the three steps and the one after. "whole": the same, with a look at everything, a masked batch and two bad ones before the
    last step, and a checkpoint in ``folder``. "resumed": the last step alone, from the checkpoint in ``folder``.
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
    """The fullest bucket of more than one tensor where ``allowed`` bytes were, and how many bytes all buckets had."""

    allowed: int
    fullest: int
    total: int


@dataclass(kw_only=True)
class Notes:
    """What one rank found in one life. Weights are as they are handed out: all of them on rank 0, on others as many as they have."""

    failed: str = ""
    place: tuple[int, int] = (0, 1)
    before: dict[str, np.ndarray] = field(default_factory=dict)
    buckets: list[BucketNote] = field(default_factory=list)
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The rollouts of the first step that were this rank's share."""
    logprobs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    reference: np.ndarray = field(default_factory=lambda: np.zeros(0))
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
    probed: np.ndarray = field(default_factory=lambda: np.zeros(0))
    gathered: list[np.ndarray] = field(default_factory=list)


_FAILED = -1


class _Lobby:
    """Where the processes meet between the lives, and inside one where the backend does not do it for them. A rank whose life fails says
    so at its next meeting, which is the last one of that life for all."""

    def __init__(self, ranks: StarRanks) -> None:
        self.ranks = ranks
        self.over = False

    def meet(self, *values: int) -> list[list[int]]:
        """What every rank came with; RunError if one came to say that it failed."""
        came = [list(map(int, part)) for part in self.ranks.gather(np.array(values, np.int64))]
        if lost := [rank for rank, said in enumerate(came) if said == [_FAILED]]:
            self.over = True
            raise RunError(f"rank {lost[0]} failed")
        return came


def live(rank: int, size: int, rendezvous: str, lives: Sequence[Life], deadline: float) -> list[Notes]:
    """All lives, one after the other, in one process a rank. A life that fails on one rank ends its layout on all of them."""
    notes: list[Notes] = []
    lost: set[str] = set()
    with closing(StarRanks(rank, size, rendezvous, deadline)) as ranks:
        for life in lives:
            if life.layout.name in lost:
                notes.append(Notes(failed="an earlier life of the layout failed"))
                continue
            own = replace(life.context, rank=rank, world_size=size, rendezvous=next_rendezvous(ranks))
            notes.append(_lived(life, own, _Lobby(ranks)))
            if notes[-1].failed:
                lost.add(life.layout.name)
    return notes


def live_here(life: Life) -> Notes:
    """A life of one rank, in this process."""
    return _lived(life, life.context, _Lobby(StarRanks(0, 1, "")))


def _lived(life: Life, context: TrainingContext, lobby: _Lobby) -> Notes:
    notes = Notes()
    try:
        _attempt(life, context, lobby, notes)
        lobby.meet()
    except RlcoreError as error:
        notes.failed = f"{type(error).__name__}: {error}"
    except Exception:
        notes.failed = traceback.format_exc()[-1500:]
    if notes.failed and not lobby.over:
        with suppress(RunError):  # which says that this rank failed
            lobby.meet(_FAILED)
    return notes


def _attempt(life: Life, context: TrainingContext, lobby: _Lobby, notes: Notes) -> None:
    arguments = (context,) if life.options is None else (context, life.options)
    backend: TrainingBackend = load_target(life.target, f"the backend {life.target!r}")(*arguments)
    try:
        backend.setup(context)
        if life.kind == "plain":
            _plain(backend, life, notes)
        elif life.kind == "whole":
            _whole(backend, life, notes, lobby)
        else:
            _resumed(backend, life, notes)
    finally:
        backend.close()


def _plain(backend: TrainingBackend, life: Life, notes: Notes) -> None:
    _three_steps(backend, life, notes)
    _step_after(backend, life, notes)


def _three_steps(backend: TrainingBackend, life: Life, notes: Notes) -> None:
    script, place = life.script, backend.data_parallel
    notes.place, notes.before, notes.rows = place, _arrays(backend), _rows(script.steps[0], 0, place)
    first = script.steps[0].take(notes.rows)
    notes.logprobs, notes.reference = (backend.logprobs(first, which) for which in (ModelRole.POLICY, ModelRole.REFERENCE))
    notes.metrics = [backend.update(share, script.objective) for share in _shares(script.steps, place)]
    notes.trained = _arrays(backend)
    segment = script.after.rollouts[0].segments[0]
    notes.probed = backend.probe(np.concatenate([segment.context_ids, segment.token_ids]))


def _whole(backend: TrainingBackend, life: Life, notes: Notes, lobby: _Lobby) -> None:
    _three_steps(backend, life, notes)
    script, place = life.script, notes.place
    sizes = [array.nbytes for array in notes.before.values()]
    total, largest = np.max(lobby.meet(sum(sizes), max(sizes, default=0)), axis=0)  # a rank may have none
    notes.buckets = [_bucket_note(backend, int(most)) for most in (1, largest + 1, (total + largest) // 2)]
    for batch in (script.masked, *script.bad):
        held = _arrays(backend)
        metrics = backend.update(batch.take(_rows(batch, 0, place)), script.objective)
        now = _arrays(backend)
        notes.not_taken.append((metrics, [name for name, array in held.items() if array.tobytes() != now[name].tobytes()]))
    notes.held = _arrays(backend)
    notes.saved = _save(backend, Path(life.folder), lobby)
    notes.gathered = backend.gather(np.arange(3 * place[0], dtype=np.float32))
    _step_after(backend, life, notes)
    notes.reference_after = backend.logprobs(script.steps[0].take(notes.rows), ModelRole.REFERENCE)


def _resumed(backend: TrainingBackend, life: Life, notes: Notes) -> None:
    backend.load(Path(life.folder) / "state")
    notes.place, notes.before = backend.data_parallel, _arrays(backend)
    _step_after(backend, life, notes)


def _step_after(backend: TrainingBackend, life: Life, notes: Notes) -> None:
    batch = life.script.after
    notes.last = backend.update(batch.take(_rows(batch, 0, backend.data_parallel)), life.script.objective)
    notes.after = _arrays(backend)


def _shares(steps: Sequence[TrainBatch], place: tuple[int, int]) -> Iterable[TrainBatch]:
    return (batch.take(_rows(batch, number, place)) for number, batch in enumerate(steps))


def _rows(batch: TrainBatch, number: int, place: tuple[int, int]) -> np.ndarray:
    """Whole groups: of step 0 each place has some, of step 1 the first place has all, of step 2 the last one."""
    owners = {0: batch.group % place[1], 1: np.zeros_like(batch.group), 2: np.full_like(batch.group, place[1] - 1)}
    return np.flatnonzero(owners[number] == place[0])


def _arrays(backend: TrainingBackend) -> dict[str, np.ndarray]:
    """Copies in the precision that they are handed out in."""
    return {name: np.array(tensor.data) for name, tensor in handed_out(backend).items()}


def _bucket_note(backend: TrainingBackend, allowed: int) -> BucketNote:
    source = backend.weight_source()
    bytes_of = {info.name: info.nbytes for info in source.manifest().tensors}
    held = [[bytes_of[name] for name in bucket] for bucket in source.buckets(allowed)]
    several = [sum(sizes) for sizes in held if len(sizes) > 1]
    return BucketNote(allowed=allowed, fullest=max(several, default=0), total=sum(map(sum, held)))


def _save(backend: TrainingBackend, folder: Path, lobby: _Lobby) -> dict[str, int]:
    """Both halves of a checkpoint; what this rank found of each when it returned. A rank that still writes is waited for by all."""
    writing: list[PendingSave] = []
    found: dict[str, int] = {}
    for name, write in (("model", backend.save_model), ("state", backend.save)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        saving = write(folder / name)
        writing += [] if saving is None else [saving]
        found |= _found(folder / name)
    if np.any(lobby.meet(len(writing))):
        for saving in writing:
            saving.result()
        lobby.meet()
        found = _found(folder / "model") | _found(folder / "state")
    return found


def _found(folder: Path) -> dict[str, int]:
    return {f"{folder.name}/{path.relative_to(folder)}": path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
