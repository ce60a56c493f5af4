"""A training backend's weights and writes, with errors that name the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.interfaces import PendingSave, TrainingBackend
from rlcore.contracts.snapshots import Tensor, WeightsManifest, WeightSource
from rlcore.registry.targets import described

__all__ = ["NamedSaving", "NamedSource", "begun_saves"]


@dataclass(frozen=True, slots=True)
class NamedSource(WeightSource):
    """A weight source whose errors name the training backend, whichever object reads it."""

    backend: TrainingBackend
    source: WeightSource
    error_context: Callable[[str], AbstractContextManager[None]]
    read: Callable[[], None]
    """Called when the last bucket was read."""

    def manifest(self) -> WeightsManifest:
        with self.error_context("listing its weights"):
            manifest = self.source.manifest()
        if manifest.kind not in self.backend.capabilities.kinds:
            raise WeightsError(
                f"the training backend {type(self.backend).__name__} publishes weights of kind {manifest.kind}, but declares "
                f"{', '.join(sorted(self.backend.capabilities.kinds))}; add {manifest.kind} to its capabilities.kinds"
            )
        return manifest

    def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
        buckets = iter(self.source.buckets(max_bytes))
        while True:
            with self.error_context("handing out weights"):
                bucket = next(buckets, None)
            if bucket is None:
                self.read()
                return
            yield bucket


def begun_saves(saving: Any) -> list[PendingSave]:
    """Return the ``PendingSave`` that a backend's ``save_model`` or ``save`` returned, in a list; an empty list if it has finished
    writing."""
    if saving is not None and not (callable(getattr(saving, "done", None)) and callable(getattr(saving, "result", None))):
        raise TypeError(f"the returned value is {described(saving)}, it must be a PendingSave or None")
    return [] if saving is None else [saving]


@dataclass(frozen=True, slots=True)
class NamedSaving:
    """All writes of a backend in progress. Errors name the backend."""

    begun: Sequence[PendingSave]
    error_context: Callable[[], AbstractContextManager[None]]

    def done(self) -> bool:
        return all(saving.done() for saving in self.begun)

    def end(self) -> None:
        """Wait for the writes and ignore their errors: something else failed, and their folder will be removed."""
        with suppress(Exception):
            self.result()

    def result(self) -> None:
        with self.error_context(), ExitStack() as waited:  # wait for all of them, even if one fails
            for saving in self.begun:
                waited.callback(saving.result)
