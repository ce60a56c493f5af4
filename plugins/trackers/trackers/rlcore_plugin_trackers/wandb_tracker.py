"""Passes the figures to W&B's own client, which sends them or keeps them in the run folder. It never asks for a key."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import wandb

from rlcore.api import RunError, RunInfo, Tracker
from rlcore_plugin_trackers.wandb_options import WandbOptions

_KEPT = "wandb.json"
"""File in the run folder that identifies the W&B run and says whether the server has any of it."""


class WandbTracker(Tracker):
    """Writes one W&B run per run, over every resume. ``step`` is an ordinary figure, and the axis of all others. W&B's own step only counts
    records, since W&B drops records with an older step, as of evaluations that overlap the training."""

    def __init__(self, options: WandbOptions | None = None) -> None:
        self._options = options if options is not None else WandbOptions()
        self._run: Any = None
        self._alone = False
        """Whether this process uses W&B for nothing else, so that its service can end with this tracker."""

    def open(self, run: RunInfo) -> None:
        """Begin the W&B run, or resume it. Figures on the server stay there; others are written again, up to ``run.step``."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # W&B receives the figures, and nothing else about this process
        self._note, self._alone = run.note, wandb.run is None
        mode = self._mode()
        if mode == "disabled":
            return
        kept = run.folder / _KEPT
        before = json.loads(kept.read_text(encoding="utf-8")) if run.step and kept.exists() else {}
        run_id, folder = before.get("id") or secrets.token_hex(4), self._folder(run) / "wandb"
        earlier = sorted(folder.glob(f"offline-run-*-{run_id}*"))  # W&B adds a number if two begin in the same second
        sent = before.get("sent", False) or any(list(one.glob("*.synced")) for one in earlier)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._run = self._begun(run, mode, run_id)
        online = not self._run.offline
        kept.write_text(json.dumps({"id": run_id, "sent": sent or online}) + "\n", encoding="utf-8")
        for name in ("step", "*"):
            self._run.define_metric(name, step_metric=None if name == "step" else "step")
        if not sent:
            for record in run.records():
                self.log(record)
            for one in earlier:
                shutil.rmtree(one)
        if online:
            run.note(f"wandb: {self._run.url}")

    def log(self, record: Mapping[str, Any]) -> None:
        """Write the figures with their step, as one row of the run's history."""
        if self._run is None:
            return
        try:
            self._run.log(dict(record))
        except OSError as error:
            self._end_service()  # the run does not close a tracker that raised
            raise RunError(f"W&B's service has died ({error}); wandb sync {self._where()} sends the figures that it had") from error

    def close(self) -> None:
        """Wait for unsent figures, at most ``timeout`` seconds, and end W&B's service."""
        try:
            if self._run is not None:
                self._finish(f"wandb: type wandb sync {self._where()} to send the figures")
        finally:
            self._end_service()

    def _where(self) -> Path:
        """Return the folder of the W&B run."""
        return Path(self._run.dir).parent

    def _end_service(self) -> None:
        if self._alone:
            with suppress(OSError):  # it has died before
                wandb.teardown()

    def _finish(self, sync: str) -> None:
        try:
            # If the run fails, its exception is being handled here: W&B then shows the run as failed.
            self._run.finish(exit_code=0 if sys.exc_info()[0] is None else 1)
        except TimeoutError:
            self._note(f"{sync} that were not sent within {self._options.timeout:g} s")
        else:
            if self._run.offline:
                self._note(sync)

    def _mode(self) -> str:
        """Return ``online``, ``offline`` or ``disabled``; online only if there is a key, because without one W&B would ask for it."""
        settings = wandb.setup(wandb.Settings(silent=True)).settings
        asked = self._options.mode if self._options.mode != "auto" else {"dryrun": "offline"}.get(settings.mode, settings.mode)
        if asked in ("offline", "disabled"):
            return asked
        problem = "this machine has no W&B key (type wandb login, or set WANDB_API_KEY)"
        try:
            if wandb.login(prompt=False, verify=False):
                return "online"
        except (wandb.Error, ValueError) as error:
            problem = " ".join(str(error).split())
        if self._options.mode == "online" or os.environ.get("WANDB_MODE"):
            self._note(f"wandb: {problem}; the figures are kept offline")
        return "offline"

    def _folder(self, run: RunInfo) -> Path:
        return Path(self._options.dir or run.folder).expanduser().absolute()

    def _begun(self, run: RunInfo, mode: str, run_id: str) -> Any:
        try:
            return self._init(run, mode, run_id)
        except wandb.Error as error:
            if mode == "offline" or not self._alone:  # W&B's service keeps the id of a run that failed to begin, until the service ends
                self._end_service()
                raise
            self._end_service()
            self._note(f"wandb: no run online ({' '.join(str(error).split())}); the figures are kept offline")
            return self._init(run, "offline", run_id)

    def _init(self, run: RunInfo, mode: str, run_id: str) -> Any:
        chosen, seconds = self._options, self._options.timeout
        return wandb.init(
            id=run_id,
            mode="offline" if mode == "offline" else "online",
            resume="allow" if mode == "online" else None,
            project=chosen.project or os.environ.get("WANDB_PROJECT") or run.config["run"]["project"],
            entity=chosen.entity or None,
            name=chosen.name or os.environ.get("WANDB_NAME") or run.folder.name,
            group=chosen.group or None,
            tags=chosen.tags or None,
            dir=self._folder(run),
            config={**run.config, "rlcore": dict(run.manifest)},
            reinit="create_new",  # a W&B run of the caller continues
            settings=wandb.Settings(
                silent=True,
                console="off",  # W&B must not copy the display of the run
                save_code=False,
                init_timeout=seconds,
                finish_timeout=seconds,
                finish_timeout_raises=True,
                x_disable_stats=not chosen.system_metrics,
            ),
        )
