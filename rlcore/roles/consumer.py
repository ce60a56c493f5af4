"""The consumer: turns the groups of one update into new weights, with one training backend.

It does not know the coordinator, the producers or any files. With several trainer ranks, each rank has its own consumer. All of them are
called with the same groups in the same order, assemble the same global batch, and pass their backend its share of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import ConfigError, RunError
from rlcore.contracts.interfaces import ModelRole, Need, PendingSave, TrainingBackend
from rlcore.contracts.snapshots import BUCKET_BYTES, Probe
from rlcore.contracts.types import Group
from rlcore.contracts.weight_transfer import Publisher
from rlcore.learning.shares import StepShares, cut_shares, joined
from rlcore.registry.error_context import error_context
from rlcore.roles.algorithm import Algorithm, MixedAlgorithm
from rlcore.roles.named_backend import NamedSaving, NamedSource, begun_saves
from rlcore.roles.part_states import PartWithState, load_state, save_state
from rlcore.roles.update_figures import described_batch, mean_by_rollout, over_steps, with_sample_size
from rlcore.runlog.folder import write_json
from rlcore.schedule.accounting import TimeAccount

__all__ = ["Consumer", "SharePlan"]

_OWN = "consumer.json"
"""The backend, the estimator and the loss that wrote the trainer's folder, and the consumer's own counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePlan:
    """The shares of one update on one rank: which rank computes which rollouts, and which groups this rank needs.

    ``groups`` holds the indices of the groups whose tokens this rank needs, and ``unassigned`` those that no rank needs."""

    shares: StepShares
    groups: tuple[int, ...]
    unassigned: tuple[int, ...]


class Consumer:
    """Owns one rank's trainer and the algorithm."""

    def __init__(
        self,
        backend: TrainingBackend,
        algorithm: Algorithm | MixedAlgorithm,
        account: TimeAccount,
        bucket_bytes: int = BUCKET_BYTES,
        rank: int = 0,
        *,
        sleeps: bool = False,
        max_skipped_steps: int = 0,
        export: str | None = None,
        retuned: Callable[[Any, Mapping[str, Any]], Algorithm | MixedAlgorithm] | None = None,
        sync: tuple[int, float] = (0, 1.0),
    ) -> None:
        """:param bucket_bytes: the size of the buckets that the publisher requests, the same on every rank.
        :param sleeps: the backend gives its device back once its weights are published, and takes it back for the next update.
        :param max_skipped_steps: optimizer steps in a row that the backend may skip.
        :param export: the dtype that the model is rounded to in ``export/`` of each checkpoint.
        :param retuned: returns the algorithm with other values of settings.
        :param sync: the updates after which the reference moves, again and again (0: never), and the share of the policy in it."""
        self._bucket_bytes = bucket_bytes
        self._rank = rank
        self._sleeps, self._asleep = sleeps, False
        self._max_skipped, self._skipped = max_skipped_steps, 0
        self._backend, self._export = backend, export
        self._algorithm, self._retuned = algorithm, retuned
        self._account = account
        self.notes: list[str] = []
        """Notes for the user about how the run continues."""
        self._sync_every, self._sync_share = sync
        if self._sync_every and Need.REFERENCE not in algorithm.needs:
            self._sync_every = 0
            self.notes.append("model.reference_sync_steps has no effect: the run has no reference model, because nothing needs one")
        self.advantages = np.zeros(0, np.float32)
        """float32[R]: the mean advantage over each rollout's tokens in the last update; rollouts in canonical order."""
        self.timings: dict[str, float] = {}
        """Seconds in the parts of the backend's steps (forward, backward, optimizer), since the start."""

    @property
    def data_parallel(self) -> tuple[int, int]:
        """``TrainingBackend.data_parallel``."""
        return self._backend.data_parallel

    @property
    def reads_logprobs(self) -> bool:
        """Whether the algorithm reads the sampler's log probabilities of the whole batch, and not only those of this rank's share."""
        return self._algorithm.reads_logprobs

    @property
    def reads_tokens(self) -> bool:
        """Whether the algorithm may read the tokens of the whole batch."""
        return self._algorithm.reads_tokens

    def plan(self, groups: Sequence[Group], masked: Collection[int], version: int) -> SharePlan:
        """Return the shares of an update on these groups. They may be outlines, if they are the same on every rank. Any thread may call
        this."""
        batch = self._algorithm.assemble(groups, masked, version)
        parts = self._algorithm.steps(batch)
        shares = self._shares(batch, parts)
        place, size = self._backend.data_parallel
        needed = [shares.groups(rank, batch, parts) for rank in range(size)]
        unassigned = set(range(len(groups))).difference(*needed)
        return SharePlan(shares=shares, groups=tuple(needed[place]), unassigned=tuple(sorted(unassigned)))

    def _shares(self, batch: TrainBatch, parts: Sequence[TrainBatch]) -> StepShares:
        (_, size), cost = self._backend.data_parallel, self._backend.cost
        with self._error_context("estimating the cost of rollouts"):
            return StepShares(
                scored=cut_shares(batch, size, cost, everything=True) if self._scores else None,
                steps=[cut_shares(part, size, cost) for part in parts],
            )

    def first_available(self, ids: np.ndarray) -> np.ndarray:
        """Return int32[T]: token ids that at least one data-parallel rank has; the others contribute none. Collective."""
        return next((given.astype(np.int32) for given in self._backend.gather(ids.astype(np.float64)) if len(given)), ids)

    def update(
        self, groups: Sequence[Group], masked: Collection[int], version: int, shares: StepShares | None = None
    ) -> Mapping[str, float]:
        """Train on the groups of the update ``version`` -> ``version + 1``, and return metrics averaged over its optimizer steps.

        A part of the batch in which nothing can train takes no optimizer step and does not advance the learning rate. Of a step that the
        backend skipped, only ``skipped_steps`` counts. Raises RunError if more than ``max_skipped_steps`` are skipped in a row, also across
        updates.

        :param masked: indices of the groups that the filter removed.
        :param shares: the planned shares. The groups that this rank needs for them must be complete, and the others may be outlines. None:
            shares of the given groups, which must be the same on every rank.
        """
        self._wake()
        algorithm = self._algorithm
        assembled = algorithm.assemble(groups, masked, version)
        if shares is None and self._backend.data_parallel[1] > 1:
            shares = self._shares(assembled, algorithm.steps(assembled))
        batch = self._with_logprobs(assembled, shares)
        batch = replace(batch, advantages=algorithm.advantages(groups, masked, batch))
        self.advantages = mean_by_rollout(batch)
        batch = algorithm.prepare(batch)
        parts = algorithm.steps(batch)
        metrics = [self._step(part, share) for part, share in zip(parts, shares.steps if shares else [None] * len(parts), strict=True)]
        totals = over_steps(metrics)
        figures = {**totals, "optimizer_steps": len(metrics) - totals.get("skipped_steps", 0.0), **described_batch(batch, algorithm.names)}
        algorithm.observe(MappingProxyType(figures))
        if self._sync_every and (version + 1) % self._sync_every == 0:
            with self._error_context("moving the reference"):
                self._backend.sync_reference(self._sync_share)
        return figures

    def control(self, settings: Mapping[str, Any]) -> None:
        """Use these values of settings from the next update on: all that differ from the plan, by path."""
        assert self._retuned is not None, "the consumer was made without a plan"
        self._algorithm = self._retuned(self._algorithm, settings)

    def publish(self, publisher: Publisher | None, version: int, probe_ids: np.ndarray | None, tolerance: float) -> None:
        """Publish the current policy under ``version``, with the trainer's log probabilities of the probe if there is one.

        Collective: ranks without a publisher (None) make the same calls of the backend and discard the weights. A backend that sleeps does
        so once its last bucket is read, before any engine is notified of the version."""
        self._wake()
        with self._account.span("weights"):
            with self._error_context("handing out weights"):
                probe = None
                if probe_ids is not None:
                    probe = Probe(token_ids=probe_ids, logprobs=self._probed(version, probe_ids), tolerance=tolerance)
                source = NamedSource(self._backend, self._backend.weight_source(), self._error_context, self._sleep)
                if publisher is None:
                    source.manifest()
                    for _ in source.buckets(self._bucket_bytes):
                        pass
                    return
            with error_context(publisher.who, f"publishing version {version}"):
                publisher.publish(version, source, probe)

    def save(self, folder: Path) -> PendingSave:
        """Save into a folder that all ranks share: ``model/`` in Hugging Face format, ``export/`` if requested, and ``trainer/`` for a
        resume.

        The weights may change when this returns. The files are complete when the ``PendingSave`` is done; its ``result`` raises
        RunError."""
        if self._rank == 0:  # before the backend, because no rank leaves its save before the others
            parts = {path.stem: type(part).__name__ for path, part, _ in self._parts_with_state(folder)}
            own = {"backend": type(self._backend).__name__, "skipped_steps": self._skipped, **parts}
            write_json(folder / "trainer" / _OWN, own)
        begun: list[PendingSave] = []
        saving = NamedSaving(begun, lambda: self._error_context(f"saving into {folder}"))
        with ExitStack() as failed:
            failed.callback(saving.end)
            writes: dict[str, Callable[[Path], PendingSave | None]] = {"model": self._backend.save_model}
            if self._export is not None:
                writes["export"] = partial(self._backend.save_model, dtype=self._export)
            for name, write in {**writes, "trainer": self._backend.save}.items():
                (folder / name).mkdir(parents=True, exist_ok=True)  # another rank may have come first
                with self._error_context(f"saving into {folder / name}"):
                    begun += begun_saves(write(folder / name))
            for path, part, who in self._parts_with_state(folder):
                save_state(path, part, who, write=self._rank == 0)
            failed.pop_all()
        return saving

    def load(self, folder: Path, *, model_alone: bool = True) -> None:
        """Resume from the files that ``save`` wrote into ``folder``. The backend loads the model at its setup.

        If another backend wrote the files, the optimizer starts anew, and one of the ``notes`` says so. Raises ConfigError if the model is
        not enough (``model_alone`` is False)."""
        own, here = json.loads((folder / "trainer" / _OWN).read_text()), type(self._backend).__name__
        self._skipped = own["skipped_steps"]
        if own["backend"] == here:
            with self._error_context(f"loading {folder / 'trainer'}"):
                self._backend.load(folder / "trainer")
        elif model_alone:
            self.notes.append(
                f"the checkpoint {folder} is of {own['backend']}, and {here} continues with its model alone: the moments of the optimizer "
                "and its learning rate schedule start anew"
            )
        else:
            raise ConfigError(
                f"the adapters of {folder} are of the training backend {own['backend']}, and {here} cannot read them; resume the run with "
                "the backend that it began with"
            )
        for path, part, who in self._parts_with_state(folder):
            if (writer := own.get(path.stem)) in (None, type(part).__name__):
                load_state(path, part, who)
            elif path.exists():
                self.notes.append(f"the checkpoint {folder} has a state of {writer}, and {who} starts without one")

    def _parts_with_state(self, folder: Path) -> list[tuple[Path, PartWithState, str]]:
        return [(folder / "trainer" / f"{name}.npz", part, who) for name, part, who in self._algorithm.parts_with_state()]

    def _wake(self) -> None:
        if self._asleep:
            with self._account.span("weights"), self._error_context("waking"):
                self._backend.wake()
            self._asleep = False

    def _sleep(self) -> None:
        if self._sleeps and not self._asleep:
            with self._error_context("going to sleep"):
                self._backend.sleep()
            self._asleep = True

    def _probed(self, version: int, probe_ids: np.ndarray) -> np.ndarray:
        logprobs = self._backend.probe(probe_ids)
        if not np.isfinite(logprobs).all():
            raise RunError(
                f"the weights of version {version} give log probabilities that are not finite: the policy has diverged, or the "
                "checkpoint it began with holds such weights; lower the learning rate (-lr), or check the model"
            )
        return logprobs

    @property
    def _scores(self) -> bool:
        algorithm = self._algorithm
        return Need.REFERENCE in algorithm.needs or algorithm.recomputes or algorithm.prepares_entropy

    def _with_logprobs(self, batch: TrainBatch, shares: StepShares | None) -> TrainBatch:
        algorithm = self._algorithm
        with self._account.span("log probabilities"), self._error_context("computing log probabilities"):
            if Need.REFERENCE in algorithm.needs:
                batch = replace(batch, reference_logprobs=self._logprobs(batch, ModelRole.REFERENCE, shares))
            if not algorithm.old_from_trainer:
                batch = replace(batch, old_logprobs=batch.rollout_logprobs)
            if algorithm.prepares_entropy:
                logprobs, entropy = self._whole(
                    batch, shares, self._backend.logprobs_and_entropies, "log probabilities or entropies of the policy model"
                )
                batch = replace(batch, entropy=entropy, old_logprobs=logprobs if algorithm.recomputes else batch.old_logprobs)
            elif algorithm.recomputes:
                batch = replace(batch, old_logprobs=self._logprobs(batch, ModelRole.POLICY, shares))
        return batch

    def _logprobs(self, batch: TrainBatch, which: ModelRole, shares: StepShares | None) -> np.ndarray:
        """Return float32[N] for the whole batch."""
        what = f"log probabilities of the {which.value} model"
        return self._whole(batch, shares, lambda share: (self._backend.logprobs(share, which),), what)[0]

    def _whole(
        self, batch: TrainBatch, shares: StepShares | None, compute: Callable[[TrainBatch], tuple[np.ndarray, ...]], what: str
    ) -> tuple[np.ndarray, ...]:
        """Return arrays float32[N] for the whole batch: this rank computes its share, and the others are gathered.

        Raises RunError if a token in the loss has a value that is not finite."""
        if shares is None or shares.scored is None:
            found = compute(batch.by_segment())
        else:
            scored = shares.scored
            own = compute(batch.take(scored[self._backend.data_parallel[0]]).by_segment())
            found = tuple(joined(batch, scored, self._backend.gather(values)) for values in own)
        trained = np.repeat(batch.in_loss, batch.lengths)
        if not all(np.isfinite(values[trained]).all() for values in found):
            raise RunError(
                f"the {what} are not finite in the update of version {batch.version}: it has "
                "diverged, or was loaded from such weights; lower the learning rate (-lr), or check the model"
            )
        return found

    def _error_context(self, doing: str) -> AbstractContextManager[None]:
        return error_context(f"the training backend {type(self._backend).__name__}", doing, "lower -tmbs or --tokens-per-forward")

    def _step(self, part: TrainBatch, shares: list[np.ndarray] | None) -> Mapping[str, float]:
        """Take one optimizer step on the global ``part``. Whether there is a step is decided on the whole part, the same on every rank."""
        share = part if shares is None else part.take(shares[self._backend.data_parallel[0]])
        share = share if self._algorithm.whole_rollouts else share.by_segment()
        with self._account.span("training"):
            self._backend.timings()
            with self._error_context("updating"):
                metrics = self._backend.update(share, self._algorithm.objective)
                if not isinstance(metrics, Mapping):
                    raise TypeError(f"update returned a {type(metrics).__name__}, it must return metrics by name")
            for activity, seconds in self._backend.timings().items():
                self.timings[activity] = self.timings.get(activity, 0.0) + seconds
        if metrics.get("skipped_steps"):
            return self._count_skipped(metrics, part.version)
        self._skipped = 0
        _check_finite(metrics, part.version)
        return {"skipped_steps": 0.0, **with_sample_size(metrics)}

    def _count_skipped(self, metrics: Mapping[str, float], version: int) -> Mapping[str, float]:
        """Return the metrics of a skipped step. The others may be NaN and would spoil the means of the update."""
        self._skipped += 1
        if self._skipped > self._max_skipped:
            raise _diverged(
                f"{self._skipped} optimizer steps in a row, up to the update of version {version}, were skipped because their gradient was "
                f"not finite (grad_norm {metrics.get('grad_norm')}), and training.max_skipped_steps is {self._max_skipped}"
            )
        return {"skipped_steps": 1.0}


def _check_finite(metrics: Mapping[str, float], version: int) -> None:
    for name in ("loss", "grad_norm"):
        if not math.isfinite(metrics.get(name, 0.0)):
            raise _diverged(f"the update of version {version} gave {name} {metrics[name]}")


def _diverged(what: str) -> RunError:
    return RunError(
        f"{what}: the policy has diverged; lower the learning rate (-lr) or the gradient norm (--max-grad-norm), and start from the last "
        "checkpoint"
    )
