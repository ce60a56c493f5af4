"""A plan on its way to the workers, and what each of them must find the same: its plugins, as the driver resolved them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """The plan as bytes, so that what is wrong with unpacking it is said by who unpacks it. ``fingerprints``: of what is read;
    ``folder``: where the driver runs, and from where relative paths are seen; ``path``: where it imports from, a notebook's too."""

    plan: bytes
    folder: str
    path: tuple[str, ...]
    attestations: tuple[Attestation, ...]
    fingerprints: Mapping[str, str]

    @classmethod
    def of(cls, plan: Plan, fingerprints: Mapping[str, str], plugins: Iterable[tuple[PluginKind, str]] | None = None) -> PlanBundle:
        """Pack it. ``plugins``: what the workers must resolve as this process does; None: all that takes part in a run. PluginError for an
        unpackaged part that cannot travel."""
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
        """The plan, with this process in the driver's folder and its threads limited. PluginError where this node resolves a plugin
        otherwise than the driver, or lacks it; ConfigError where it lacks the folder."""
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise ConfigError(
                f"{worker} refuses to start: its node has no folder {self.folder} ({error.strerror}), where the driver runs; "
                "run from a folder that every node shares"
            ) from error
        if ENVIRONMENT not in os.environ:  # else whoever started it has said what it imports from
            sys.path += [entry for entry in self.path if entry not in sys.path and Path(entry).exists()]
        try:
            plan: Plan = cloudpickle.loads(self.plan)
            plan.registry.check_attestations(self.attestations)
        except RlcoreError as error:
            raise PluginError(f"{worker} refuses to start: {error}; install the same packages on every node") from error
        except (ImportError, AttributeError) as error:
            raise PluginError(
                f"{worker} refuses to start: {error} on its node; install the same packages on every node, "
                "and run from a folder that holds none of their names (a checkout in a folder rlcore hides the package)"
            ) from error
        limit_threads(threads_of(plan.config.training.num_trainers + plan.config.inference.num_inferencer))
        return plan

    @property
    def pulse(self) -> Watchdog:
        """Of the worker that opens it."""
        return Watchdog()

    def read(self, plan: Plan, worker: str) -> Texts:
        """The tokenizer and the prompts of the plan. DataError if they are others than the driver's."""
        data = load_data(plan)
        texts = read_texts(plan, data, checked=True)
        for name, found in fingerprints(data, texts.tokenizer).items():
            if found != self.fingerprints[name]:
                what = name if name == "tokenizer" else f"data set {name}"
                raise DataError(
                    f"{what} is read by each process, and {worker} reads another than the driver: a data source must give the same rows "
                    "each time, and files must be the same on every host and stay as they are; to read it once on one host, type "
                    "--max-staleness 0 -i 1 -t 1"
                )
        return texts
