"""Passes the figures to Trackio: into its folder on this machine, or to a Space."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any

import trackio

from rlcore.api import RunInfo, Tracker
from rlcore_plugin_trackers.suppressed_output import suppressed_output
from rlcore_plugin_trackers.trackio_options import TrackioOptions

_KEPT = "trackio.json"
"""File in the run folder that identifies the Trackio run."""
_PLACES = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
"""Variables that make Trackio send data to another machine."""


class TrackioTracker(Tracker):
    """Writes one Trackio run per run. On this machine a resumed run is written again under the same name, and the earlier one is deleted. A
    Space cannot delete figures, so the run continues there."""

    def __init__(self, options: TrackioOptions | None = None) -> None:
        self._options = options if options is not None else TrackioOptions()
        self._run: Any = None

    def open(self, run: RunInfo) -> None:
        """Begin the Trackio run. If a Space cannot be reached, the figures stay on this machine, so that none is lost."""
        kept = run.folder / _KEPT
        before = json.loads(kept.read_text(encoding="utf-8")) if run.step and kept.exists() else {}
        project = self._options.project or run.config["run"]["project"]
        remote = bool(self._options.space_id or any(os.environ.get(name) for name in _PLACES))
        try:
            self._begin(run, project, remote=remote, resume=bool(before.get("remote")))
        except Exception as error:  # any error of the network and the libraries of the Hub
            if not remote:
                raise
            remote = False
            with _without_places():
                self._begin(run, project, remote=False, resume=False)
            later = f"type trackio sync --project {project} --space-id USER/NAME later"
            run.note(f"trackio: no Space ({type(error).__name__}: {error}); the figures stay on this machine; {later}")
        kept.write_text(json.dumps({"project": project, "id": self._run.id, "remote": remote}) + "\n", encoding="utf-8")
        if not (remote and before.get("remote")):
            for record in run.records():
                self.log(record)
        if before and not before["remote"]:
            _forget(before["project"], before["id"])
        if not remote:
            run.note(f"trackio: type trackio show --project {project}")

    def log(self, record: Mapping[str, Any]) -> None:
        """Send the figures, at the record's step."""
        self._run.log({name: value for name, value in record.items() if name != "step"}, step=record["step"])

    def close(self) -> None:
        """Wait for unwritten figures, at most 30 s."""
        if self._run is not None:
            with suppressed_output():
                self._run.finish()

    def _begin(self, run: RunInfo, project: str, *, remote: bool, resume: bool) -> None:
        chosen = self._options
        where = {"space_id": chosen.space_id, "bucket_id": chosen.bucket_id, "dataset_id": chosen.dataset_id} if remote else {}
        hardware = None if chosen.system_metrics else False
        with suppressed_output():
            # In a separate context: the caller's context may have another Trackio run, which init would end.
            self._run = Context().run(
                trackio.init,
                project=project,
                name=chosen.name or run.folder.name,
                group=chosen.group or None,
                config={**run.config, "rlcore": dict(run.manifest)},
                resume="allow" if resume else "never",
                private=chosen.private,
                embed=False,
                auto_log_gpu=hardware,
                auto_log_cpu=hardware,
                **{name: value or None for name, value in where.items()},
            )


@contextmanager
def _without_places() -> Iterator[None]:
    """Remove, inside the block, the variables that make Trackio send data to another machine."""
    taken = {name: os.environ.pop(name) for name in _PLACES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(taken)


def _forget(project: str, run_id: str) -> None:
    """Delete a run of this machine, if Trackio has it: a run that was killed at once wrote nothing."""
    with suppress(ValueError):  # there is no such project
        for run in trackio.Api().runs(project):
            if run.id == run_id:
                run.delete()
