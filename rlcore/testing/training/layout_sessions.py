"""The base of the rules of layouts: it runs a backend once on each layout that it declares, for all rules."""

from __future__ import annotations

import atexit
import functools
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar, Literal

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RlcoreError
from rlcore.contracts.interfaces import Need, TrainingBackend, TrainingContext
from rlcore.testing.training.layout_runs import LAYOUTS, LayoutRun, Notes, RankLayout, Script, run_here
from rlcore.testing.training.rank_processes import run_ranks
from rlcore.testing.training.trainer_suite import TrainerSuite

__all__ = ["LayoutSessions", "distance", "policy_tokens", "same_bits"]

_EXACT = 1e-9
"""Of float64, in which sums in another order differ by some 1e-16."""

_SINGLE = LAYOUTS[0]

Arrays = Mapping[str, np.ndarray]
RolloutKind = Literal["plain", "whole", "resumed"]

Seen = tuple[str, list[Notes], Notes, LayoutRun]
"""A name for messages; the notes of each rank; those of one process in one go; the run."""


class LayoutSessions(TrainerSuite):
    """Attributes of the rules of layouts, and the runs that the rules read."""

    rank_counts: ClassVar[Sequence[int]] = (1, 2)
    """Numbers of processes; with 4, layouts of two axes are tried too."""
    layout_dtype: ClassVar[str] = ""
    """Dtype of these rules; "": float64 if the backend offers it, else ``dtype``."""
    layout_drift: ClassVar[float] = 0.0
    """How far the weights may be from those of one process, as a share of the way that these went; 0: 1e-9 in float64, else 0.05, since
    AdamW makes whole steps of gradients that are but rounding. A model that rounds to float32 whatever it is loaded in needs some 1e-5."""
    layout_marks: ClassVar[Sequence[Callable[[Any], Any]]] = ()
    """Marks of pytest for these rules, if your runs leave out tests that start processes."""
    left_out: ClassVar[frozenset[str]] = frozenset()
    """Layouts by name (``layout_runs.LAYOUTS``) that are not tried: they are others under another name, or have a test elsewhere."""
    cut_figures: ClassVar[frozenset[str]] = frozenset({"padding_share"})
    """Metrics that say how the work was cut: equal on all ranks, and another with another cut."""
    rank_timeout: ClassVar[float] = 120.0
    """Seconds that the processes of one layout may take."""
    _sessions: ClassVar[dict[int, Mapping[tuple[str, str], list[Notes]] | str]]
    """By number of processes: notes by layout and run, or why there are none."""
    _references: ClassVar[dict[str, Notes]]
    _kept: ClassVar[Path]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls._sessions, cls._references = {}, {}
        if "layout_marks" in vars(cls):
            for name in dir(cls):
                if name.startswith("test_layouts_"):
                    setattr(cls, name, _marked(getattr(cls, name), cls.layout_marks))

    def rank_target(self, backend: TrainingBackend) -> tuple[str, Any]:
        """Return how another process makes ``backend``: ``module:name`` of something to call with ``(context, options)``, or with
        the context alone if these are None, importable by name; and the options. By default its class and its attribute ``options``."""
        return f"{type(backend).__module__}:{type(backend).__qualname__}", getattr(backend, "options", None)

    # --- what the rules read -----------------------------------------------------------------------------------------------

    def _whole(self) -> Iterator[Seen]:
        """Yield, for each layout and model, the run that checks everything."""
        return (seen for seen in self._trained() if seen[3].kind == "whole")

    def _trained(self) -> Iterator[Seen]:
        """Yield each run that takes all steps, with each layout, micro-batches and variant."""
        for layout in self._layouts():
            for what, run in self._layout_runs(layout).items():
                if run.kind != "resumed":
                    yield f"layout {layout.name} ({what})", self._notes(layout, what), self._reference(run.model), run

    def _grown(self) -> Iterator[tuple[RankLayout, RankLayout]]:
        """Return the layouts of four processes, each with one of two processes whose checkpoint it resumed from."""
        return ((layout, self._half(layout)) for layout in self._layouts() if layout.ranks == 4)

    def _notes(self, layout: RankLayout, what: str) -> list[Notes]:
        session = self._session(layout.ranks)
        assert not isinstance(session, str), f"{layout.ranks} processes: {session}"
        notes = session[layout.name, what]
        for rank, each in enumerate(notes):
            assert not each.failed, f"layout {layout.name} ({what}): rank {rank} ended with an error: {each.failed}"
        return notes

    def _resumed_alone(self, run: LayoutRun) -> Notes:
        """Return the notes of one process that resumes from the checkpoint of ``run``."""
        key = f"{run.layout.name}, {run.what}"
        if key in self._references:
            return self._references[key]
        read = replace(run.context, model=f"{run.folder}/model", zero_stage=0)
        alone = replace(read, tensor_parallel=1, pipeline_parallel=1, context_parallel=1)
        notes = run_here(replace(run, kind="resumed", layout=_SINGLE, context=alone))
        assert not notes.failed, f"layout {run.layout.name}: its checkpoint cannot be loaded by one process: {notes.failed}"
        self._references[key] = notes
        return notes

    # --- the sessions ------------------------------------------------------------------------------------------------------

    def _layouts(self, counts: Sequence[int] = ()) -> list[RankLayout]:
        """Return the layouts of ``counts`` processes (none: ``rank_counts``) that the backend declares."""
        declared = self.make(self.context()).capabilities.layouts
        tried = [layout for layout in LAYOUTS if layout.needs <= declared and layout.name not in self.left_out]
        return [layout for layout in tried if layout.ranks in (counts or self.rank_counts)]

    def _half(self, layout: RankLayout) -> RankLayout:
        """Return a layout of two processes with as much of the settings of ``layout`` as one has."""
        fitting = [two for two in self._layouts([2]) if two.settings.items() <= layout.settings.items()]
        return max(fitting, key=lambda two: len(two.settings))

    def _session(self, size: int) -> Mapping[tuple[str, str], list[Notes]] | str:
        if size == 4:
            self._session(2)  # whose checkpoints are loaded
        if size not in self._sessions:
            self._sessions[size] = self._run(size)
        return self._sessions[size]

    def _run(self, size: int) -> Mapping[tuple[str, str], list[Notes]] | str:
        layouts = self._layouts([size])
        runs = [run for layout in layouts for run in self._layout_runs(layout).values()]
        names = [(run.layout.name, run.what) for run in runs]
        if size == 1:
            return {name: [run_here(run)] for name, run in zip(names, runs, strict=True)}
        limit = self.rank_timeout * max(1, len(layouts))
        try:
            answers = run_ranks("rlcore.testing.training.layout_runs:run_layouts", size, runs, limit, timeout=limit)
        except RlcoreError as error:
            return str(error)
        broken = [str(answer) for answer in answers if isinstance(answer, RlcoreError)]
        return broken[0] if broken else {name: [answer[place] for answer in answers] for place, name in enumerate(names)}

    def _layout_runs(self, layout: RankLayout) -> dict[str, LayoutRun]:
        """Return the runs of a layout by ``what``, in the order in which they must be made."""
        first, runs = next(iter(self.models())), []
        for model in self.models():
            whole = self._layout_run("whole", layout, f"whole {model}".strip(), model)
            read = replace(whole.context, model=f"{whole.folder}/model")
            runs += [whole, replace(whole, kind="resumed", what=f"resumed {model}".strip(), context=read)]
        for rollouts, (variant, options) in self._cuts():
            what = f"{rollouts} in a forward" + (f", {variant}" if variant else "")
            runs.append(self._layout_run("plain", layout, what, first, options, rollouts_per_forward=rollouts))
        if layout.ranks == 4:
            folder = self._layout_runs(self._half(layout))[f"whole {first}".strip()].folder
            grown = self._layout_run("resumed", layout, "grown", first)
            runs.append(replace(grown, folder=folder, context=replace(grown.context, model=f"{folder}/model")))
        return {run.what: run for run in runs}

    def _cuts(self) -> list[tuple[int, tuple[str, Any]]]:
        """Return rollouts of a forward and a variant of the options: each variant with another count, at least one of 1 and one of 4."""
        variants = [*self.variants().items(), ("", None), ("", None)][: max(2, len(self.variants()))]
        return [((1, 4, 64)[place % 3], variant) for place, variant in enumerate(variants)]

    def _layout_run(self, kind: RolloutKind, layout: RankLayout, what: str, model: str, options: Any = None, **changes: Any) -> LayoutRun:
        context = self._layout_context(max_grad_norm=self._limit, **{"model": self.models()[model], **layout.settings, **changes})
        target, own = self.rank_target(self.make(self.context()))
        folder = self._folder / layout.name.replace(" ", "") / (model or "model")
        return LayoutRun(
            kind=kind,
            layout=layout,
            what=what,
            model=model,
            target=target,
            options=own if options is None else options,
            context=context,
            script=self._script,
            folder=str(folder),
        )

    def _layout_context(self, **changes: Any) -> TrainingContext:
        """Return a context with warm-up and decay of the rate, weight decay, and a reference model."""
        dtypes = self.make(self.context()).capabilities.dtypes
        dtype = self.layout_dtype or ("float64" if "float64" in dtypes else self.dtype)
        context = self.context(dtype=dtype, needs=frozenset({Need.REFERENCE}), **changes)
        schedule = replace(context.optimizer, weight_decay=0.1, warmup_steps=2, min_lr_ratio=0.1, total_steps=8)
        return replace(context, optimizer=schedule)

    def _reference(self, model: str) -> Notes:
        """Return the notes of one process with all rollouts in one forward and no steps but the four."""
        if model not in self._references:
            notes = run_here(self._layout_run("plain", _SINGLE, f"reference {model}", model))
            assert not notes.failed, f"one process ended with an error: {notes.failed}"
            self._references[model] = notes
        return self._references[model]

    @cached_property
    def _limit(self) -> float:
        """A norm that all gradients of the script must be clipped to."""
        backend = self.make(self._layout_context())
        backend.setup(self._layout_context())
        norm = backend.update(self._script.steps[0], self.objective())["grad_norm"]
        backend.close()
        return 0.3 * norm

    @cached_property
    def _script(self) -> Script:
        first, second, third, after, other = (self.off_policy(self.batch(seed=seed)) for seed in range(5))
        nothing = np.zeros(len(other), np.bool_)
        return Script(
            steps=(first, second, third),
            masked=replace(other, in_loss=nothing, weights=np.zeros_like(other.weights)),
            bad=(_spoilt(other, 4, np.nan), _spoilt(other, 0, np.inf)),
            after=after,
            objective=self.objective(),
        )

    @property
    def _folder(self) -> Path:
        """Of the checkpoints; it outlives the suite object, as the sessions do."""
        cls = type(self)
        if "_kept" not in vars(cls):
            cls._kept = Path(mkdtemp(prefix="rlcore-layouts-"))
            atexit.register(shutil.rmtree, cls._kept, ignore_errors=True)
        return cls._kept

    # --- comparing ---------------------------------------------------------------------------------------------------------

    @property
    def _exactness(self) -> float:
        return self.layout_drift or (_EXACT if self._layout_context().dtype == "float64" else 0.05)

    def _check_figures(self, mine: Mapping[str, float], theirs: Mapping[str, float], who: str, *, exactly: bool = False) -> None:
        assert set(mine) == set(theirs), f"{who}: figures in one only: {sorted(set(mine) ^ set(theirs))}"
        loose = min(self._exactness, self.tolerance * 10)
        for name, value in theirs.items():
            if not exactly and name in self.cut_figures:
                continue
            close = mine[name] == value if exactly else math.isclose(mine[name], value, rel_tol=loose, abs_tol=loose / 10)
            assert close, f"{who}: {name} is {mine[name]:.6g}, of the other {value:.6g}" + _by_how_much(mine[name], value)

    def _check_drift(self, who: str, mine: Arrays, theirs: Arrays, before: Arrays) -> None:
        assert set(mine) == set(theirs), f"{who}: tensors in one only: {sorted(set(mine) ^ set(theirs))}"
        off = {name: float(np.linalg.norm(_exact(mine[name]) - _exact(array))) for name, array in theirs.items()}
        moved = math.hypot(*(float(np.linalg.norm(_exact(array) - _exact(before[name]))) for name, array in theirs.items()))
        assert moved > 0, f"{who}: no step moved any weight"
        share, worst = math.hypot(*off.values()) / moved, max(off, key=lambda name: off[name])
        assert share <= self._exactness, (
            f"{who}: the weights are off by {share:.2g} of what the steps moved, where {self._exactness:.2g} is allowed; {worst!r} the most"
        )


def same_bits(mine: np.ndarray, theirs: np.ndarray) -> bool:
    """Return whether two arrays are equal bit for bit, NaN included."""
    return mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()


def distance(mine: Arrays, theirs: Arrays, names: Sequence[str]) -> str:
    """Return the difference of the first of ``names``, in words."""
    one, other = mine[names[0]], theirs[names[0]]
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"of shape {one.shape} and {one.dtype}, not {other.shape} and {other.dtype}"
    return f"off by {float(np.abs(_exact(one) - _exact(other)).max()):.2g} at most"


def policy_tokens(batch: TrainBatch, rows: np.ndarray) -> np.ndarray:
    """Return bool[N]: tokens of these rollouts."""
    return np.repeat(np.isin(np.arange(len(batch)), rows), batch.lengths)


def _exact(array: np.ndarray) -> np.ndarray:
    """Return float64 values; uint16 carries bfloat16."""
    bits = (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array
    return bits.astype(np.float64)


def _by_how_much(mine: float, theirs: float) -> str:
    return f", {mine / theirs:.4g} times it: shares add up, they are not averaged" if theirs and math.isfinite(mine / theirs) else ""


def _spoilt(batch: TrainBatch, row: int, value: float) -> TrainBatch:
    """Return the batch with ``value`` as the advantage of the first token of a rollout."""
    advantages = batch.advantages.copy()
    advantages[batch.offsets[row]] = value
    return replace(batch, advantages=advantages)


def _marked(rule: Callable[..., None], marks: Sequence[Callable[[Any], Any]]) -> Callable[..., None]:
    @functools.wraps(rule)
    def marked(self: Any) -> None:
        rule(self)

    return functools.reduce(lambda function, mark: mark(function), marks, marked)
