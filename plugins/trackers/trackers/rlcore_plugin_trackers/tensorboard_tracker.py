"""Writes event files with TensorBoard's own writer; neither torch nor TensorFlow is needed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from rlcore.api import RunInfo, Tracker
from rlcore_plugin_trackers.tensorboard_options import TensorBoardOptions

_SUFFIX = ".rlcore"
"""The suffix of our event files."""


class TensorBoardTracker(Tracker):
    """Writes one event per record, which is on disk when ``log`` returns: a run that is killed loses none."""

    def __init__(self, options: TensorBoardOptions | None = None) -> None:
        self._options = options if options is not None else TensorBoardOptions()
        self._writer: Any = None

    def open(self, run: RunInfo) -> None:
        """Begin a file. In a resumed run it replaces the earlier files; a TensorBoard that has read those drops their events."""
        folder = _folder(run, self._options.log_dir)
        earlier = sorted(folder.glob(f"*{_SUFFIX}"))
        written = _wall_times(earlier) if run.step else {}
        self._writer = EventFileWriter(str(folder), filename_suffix=_SUFFIX)
        self._writer.add_event(Event(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.START)))
        self._describe(run)
        for record in run.records():
            self._write(record, written.get((record["step"], _names(record))))
        self._writer.flush()
        for path in earlier:  # emptied, not removed: a TensorBoard that reads one would wait for it to come back
            path.write_bytes(b"")

    def log(self, record: Mapping[str, Any]) -> None:
        """Write a scalar for each figure, as float32, at the record's step."""
        self._write(record)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, record: Mapping[str, Any], when: float | None = None) -> None:
        summary = Summary()
        for name in _names(record):
            summary.value.add(tag=name, simple_value=record[name])
        self._writer.add_event(Event(wall_time=time.time() if when is None else when, step=record["step"], summary=summary))

    def _describe(self, run: RunInfo) -> None:
        """Write settings and manifest as texts (tab TEXT), and the settings as hyperparameters."""
        summaries = [text_pb(name, _block(content)) for name, content in (("config", run.config), ("manifest", run.manifest)) if content]
        if self._options.hparams and run.config:
            summaries.append(hparams_pb(dict(_flat(run.config)), trial_id=f"{run.folder.parent.name}/{run.folder.name}"))
        for summary in summaries:
            self._writer.add_event(Event(wall_time=time.time(), summary=summary))


def _folder(run: RunInfo, log_dir: str) -> Path:
    """Return the folder for the event files of this run only: TensorBoard takes a folder for a run."""
    chosen = Path(log_dir).expanduser()
    return chosen / run.folder.parent.name / run.folder.name if chosen.is_absolute() else run.folder / chosen


def _names(record: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, value in record.items() if name != "step" and isinstance(value, int | float))


def _wall_times(files: list[Path]) -> dict[tuple[int, tuple[str, ...]], float]:
    """Return (step, names) of each written record -> its wall time."""
    events = (event for path in files for event in EventFileLoader(str(path)).Load() if event.HasField("summary"))
    return {(event.step, tuple(value.tag for value in event.summary.value)): event.wall_time for event in events}


def _flat(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, bool | float | str]]:
    """Yield ``section.key`` and value of each setting that is set; a list as JSON."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        elif value is not None:
            yield f"{path}{key}", value if isinstance(value, bool | int | float | str) else json.dumps(value, default=str)


def _block(content: Mapping[str, Any]) -> str:
    """Return JSON as a Markdown code block."""
    return "".join(f"    {line}\n" for line in json.dumps(content, indent=2, ensure_ascii=False, default=str).splitlines())
