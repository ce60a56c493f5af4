"""The sbatch file of a run on Ray: a header, bash variables for the run, and steps that are the same in every file.

User input appears only in the variables, quoted; the header holds checked words and numbers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rlcore.api import UsageError
from rlcore_plugin_ray.launch.devices import Machines
from rlcore_plugin_ray.launch.packages import Packages
from rlcore_plugin_ray.launch.slurm_steps import STEPS
from rlcore_plugin_ray.launch.time_limit import GRACE_SECONDS, check_time_limit

__all__ = ["SlurmJob", "sbatch_text"]

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,@+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """The values of an sbatch file. Raise UsageError for a value that Slurm would misread.

    ``train``: the words after ``rlcore train``. ``folder``: the folder in which they were typed. ``venv`` and ``container``: the
    environment of every node, "" for that of the submitting shell. ``wheels``: the folder from which pip installs rlcore and its plugins,
    "" if every node has them.
    """

    project: str
    folder: str
    train: Sequence[str]
    machines: Machines
    packages: Packages
    time: str = "12:00:00"
    partition: str = ""
    account: str = ""
    venv: str = ""
    container: str = ""
    ray_dir: str = ""
    wheels: str = ""

    def __post_init__(self) -> None:
        check_time_limit(self.time)
        for flag, value in (("--partition", self.partition), ("--account", self.account)):
            if value and not _WORD.fullmatch(value):
                raise UsageError(
                    f"{flag} {value!r} must be one word of letters, digits and _.,@+-; type {flag} and a name that Slurm knows"
                )


def sbatch_text(job: SlurmJob) -> str:
    """Return the file, ready for ``sbatch``."""
    return "\n".join(["#!/bin/bash", *_header(job), "", *_variables(job), "", STEPS.strip(), ""])


def _header(job: SlurmJob) -> list[str]:
    machines = job.machines
    options = {
        "job-name": "rlcore-" + (re.sub(r"[^A-Za-z0-9_.-]+", "-", job.project).strip("-") or "run"),
        "nodes": machines.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": machines.cpus,
        "gpus-per-node": machines.gpus or None,
        "time": job.time,
        "partition": job.partition or None,
        "account": job.account or None,
        "output": "%x-%j.out",
        "open-mode": "append",
        "signal": f"B:TERM@{GRACE_SECONDS}",
    }
    return [f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None] + ["#SBATCH --requeue"]


def _variables(job: SlurmJob) -> list[str]:
    versions, extra = ((), ()) if job.container else (job.packages.versions, job.packages.extra)
    needs = [f"# Every node must find this file too: {file!r}" for file in job.packages.files]
    return [
        "# --- the run and its nodes ---------------------------------------------------------------------------------",
        f"folder={shlex.quote(job.folder)}  # every node must see it; relative paths in the run start here",
        *needs,
        f"train=({shlex.join(job.train)})",
        f"venv={shlex.quote(job.venv)}  # '': the environment in which sbatch was typed",
        f"container={shlex.quote(job.container)}  # '': none; else an Apptainer image that holds Ray, rlcore and the plugins",
        "# The packages with which the run was checked. They never come from an index, where a third party may own their names. Without",
        "# wheels= they must be installed in the environment of every node. This is checked before Ray starts.",
        f"versions=({shlex.join(versions)})",
        f"wheels={shlex.quote(job.wheels)}  # '': versions= is only checked; else pip installs it from this folder and from nowhere else",
        f"packages=({shlex.join(extra)})  # --plugin: pip installs these on every node, once, from its index",
        f"ray_dir={shlex.quote(job.ray_dir)}  # '': a new folder below /tmp",
        f"cpus={job.machines.cpus}",
        f"gpus={job.machines.gpus}",
        "join_seconds=${RLCORE_JOIN_SECONDS:-600}  # how long the nodes have to form a Ray cluster",
        "most_starts=3  # at most, of Ray on each node, until the cluster is complete",
        "most_requeues=3  # so that a job that fails again and again ends",
    ]
