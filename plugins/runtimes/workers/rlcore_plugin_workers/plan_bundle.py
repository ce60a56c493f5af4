"""The plan in the form that workers receive, and the checks that each worker resolves the same plugins and reads the same data as the
driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from rlcore.api import ConfigError, DataError, PluginError, PluginKind, RlcoreError
from rlcore.api.runtime import (
    ENVIRONMENT,
    Attestation,
    Plan,
    Texts,
    Watchdog,
    fingerprints,
    limit_threads,
    load_data,
    read_texts,
    threads_of,
    used_plugins,
)

__all__ = ["PlanBundle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBundle:
    """A plan, pickled so that each worker can report its own errors when it unpickles it.

    ``fingerprints`` identifies the data and the tokenizer. ``folder`` is the driver's working directory, to which relative paths refer.
    ``path`` is the driver's import path, which includes that of a notebook.
    """

    plan: bytes
    folder: str
    path: tuple[str, ...]
    attestations: tuple[Attestation, ...]
    fingerprints: Mapping[str, str]

    @classmethod
    def of(cls, plan: Plan, fingerprints: Mapping[str, str], plugins: Iterable[tuple[PluginKind, str]] | None = None) -> PlanBundle:
        """Pack the plan. ``plugins`` names the plugins that workers must resolve as this process does; None means all plugins of a run.
        Raise PluginError if an unpackaged part cannot be pickled."""
        used = used_plugins(plan) if plugins is None else plugins
        attestations = tuple(plan.registry.attest(kind, name) for kind, name in used)
        return cls(
            plan=cloudpickle.dumps(plan),
            folder=str(Path.cwd()),
            path=tuple(str(Path(entry).resolve()) for entry in sys.path),
            attestations=attestations,
            fingerprints=dict(fingerprints),
        )

    def open(self, worker: str) -> Plan:
        """Enter the driver's folder, limit the threads of this process, and return the plan. Raise PluginError if this node lacks a plugin
        or resolves a different one from the driver's; raise ConfigError if it lacks the folder."""
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise ConfigError(
                f"{worker} refuses to start: its node has no folder {self.folder} ({error.strerror}), where the driver runs; "
                "run from a folder that every node shares"
            ) from error
        if ENVIRONMENT not in os.environ:  # if it is set, the launcher has set the import path
            sys.path += [entry for entry in self.path if entry not in sys.path and Path(entry).exists()]
        try:
            plan: Plan = cloudpickle.loads(self.plan)
            plan.registry.check_attestations(self.attestations)
        except RlcoreError as error:
            raise PluginError(f"{worker} refuses to start: {error}; install the same packages on every node") from error
        except (ImportError, AttributeError) as error:
            raise PluginError(
                f"{worker} refuses to start: {error} on its node; install the same packages on every node, "
                "and run from a folder that contains none of their names (a checkout in a folder named rlcore hides the package)"
            ) from error
        limit_threads(threads_of(plan.config.training.num_trainers + plan.config.inference.num_inferencer))
        return plan

    @staticmethod
    def packed(part: Any) -> bytes:
        """Pickle a part of the run, with the code of classes that come from a file or a notebook."""
        return bytes(cloudpickle.dumps(part))

    def unpacked(self, part: bytes, worker: str) -> Any:
        """Call ``open``, and return a part of the run that ``packed`` pickled."""
        self.open(worker)
        return cloudpickle.loads(part)

    @property
    def pulse(self) -> Watchdog:
        """Return a new watchdog for the worker that opens the bundle."""
        return Watchdog()

    def read(self, plan: Plan, worker: str) -> Texts:
        """Return the tokenizer and the prompts of the plan. Raise DataError if they differ from the driver's."""
        data = load_data(plan)
        texts = read_texts(plan, data, checked=True)
        for name, found in fingerprints(data, texts.tokenizer).items():
            if found != self.fingerprints[name]:
                what = name if name == "tokenizer" else f"data set {name}"
                raise DataError(
                    f"{what} is read by each process, and {worker} reads different content from the driver: a data source must return the "
                    "same rows each time, and files must be the same on every host and must not change; to read it once on one host, type "
                    "--max-staleness 0 -i 1 -t 1"
                )
        return texts
