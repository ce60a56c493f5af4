"""The file of ``--out``, and ``FILE.part`` beside it, which keeps what is finished until the evaluation is complete.

``FILE.part`` has a line about the evaluation, and then a line for each prompt whose answers are judged. A line is durable before the next
prompt is judged. A kill can cut only the last line, whose prompt is then evaluated again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from rlcore.api import RunError, UsageError
from rlcore.api.commands import write_json_lines
from rlcore_plugin_tools.eval.row_file import RowFile
from rlcore_plugin_tools.settings_compared import flat_settings

__all__ = ["FinishedPrompt", "PartFile", "finished_prompts", "plain_row", "summary_path"]

_MOST_NAMED = 4
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FinishedPrompt:
    """The rows of a prompt, one for each answer. ``prompt``: its number in the task. ``elapsed``: seconds of the ``session``, which is the
    number of the command that evaluated it, when it was finished."""

    task: str
    prompt: int
    rows: Rows
    session: int = 0
    elapsed: float = 0.0

    def as_line(self) -> bytes:
        """Return a line of the file."""
        line = {"task": self.task, "prompt": self.prompt, "session": self.session, "elapsed": self.elapsed, "rows": list(self.rows)}
        return _line(line)


def finished_prompts(data: bytes) -> tuple[dict[str, Any] | None, dict[tuple[str, int], FinishedPrompt], int]:
    """Read a part file: its line about the evaluation (None if not even this is whole), its prompts by task and number, and the number of
    bytes before a last line that is cut. ValueError if a whole line is not one that an evaluation writes."""
    whole = data.rfind(b"\n") + 1
    lines = [json.loads(line) for line in data[:whole].splitlines()]
    if not lines:
        return None, {}, 0
    try:
        found = [FinishedPrompt(line["task"], line["prompt"], line["rows"], line["session"], line["elapsed"]) for line in lines[1:]]
        return dict(lines[0]["evaluation"]), {(one.task, one.prompt): one for one in reversed(found)}, whole
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as it is read back: a number that is not finite becomes None."""
    found: dict[str, Any] = json.loads(_line(row), parse_constant=lambda name: None)
    return found


def summary_path(out: Path) -> Path:
    """Return the file beside ``--out`` with the figures and settings of the evaluation."""
    return out.with_name(f"{out.name}.eval.json")


class PartFile:
    """Keeps finished prompts, and writes the file of ``--out`` at the end.

    :param resume: continue what is there. UsageError if it is not, and ``FILE`` or ``FILE.part`` exists; or if a file cannot be written.
    """

    def __init__(self, out: Path, *, resume: bool) -> None:
        self._rows = RowFile(out)
        self.out = out
        self.path = out.with_name(f"{out.name}.part")
        self._resume = resume
        self._session = 0
        self._evaluation: Mapping[str, Any] = {}
        self._file: FileIO | None = None
        self._whole: int | None = None
        """The number of bytes of the file before a line that a kill has cut; None: all."""
        if not resume and self.path.exists():
            raise UsageError(f"--out {out}: {self.path} has an evaluation that did not complete; add --resume to continue it, or remove it")
        if self._has_rows() and not resume:
            raise UsageError(f"--out {out}: is there already; add --resume if it is this evaluation, else name another file")

    def begin(self, evaluation: Mapping[str, Any]) -> dict[tuple[str, int], FinishedPrompt]:
        """Return the prompts that are finished, by task and number. ``evaluation``: all that the answers depend on.

        UsageError if the file was made by another evaluation, if it is damaged, or if another command writes it."""
        self._evaluation = plain_row(evaluation)
        if not self._resume:
            return {}
        there = self._of_part() if self.path.exists() else self._of_complete()
        if there is None:
            return {}
        known, prompts = there
        differ = _differences(known, self._evaluation)
        if differ:
            more = f", and {len(differ) - _MOST_NAMED} more" if len(differ) > _MOST_NAMED else ""
            raise UsageError(
                f"--resume: {self.path if self._file else self.out} was made by another evaluation: "
                f"{', '.join(differ[:_MOST_NAMED])}{more}; type what it was made with, or name another --out"
            )
        self._session = 1 + max((one.session for one in prompts.values()), default=-1)
        return prompts

    def keep(self, task: str, prompt: int, rows: Rows, elapsed: float) -> FinishedPrompt:
        """Write the rows of a prompt, durably. ``elapsed``: seconds since this command began to evaluate. RunError if the disk is full."""
        finished = FinishedPrompt(task, prompt, rows, self._session, round(elapsed, 3))
        try:
            if self._file is None:
                self._open()
                self._write(_line({"evaluation": self._evaluation}))
            elif self._whole is not None:
                self._file.truncate(self._whole)
                self._whole = None
            self._write(finished.as_line())
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be written ({error.strerror or error}); --resume continues with the prompts that are finished"
            ) from None
        return finished

    def complete(self, rows: Iterable[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
        """Write all rows and the summary, each whole or not at all, and remove ``FILE.part``."""
        self._rows.write(rows)
        write_json_lines(Path(os.path.realpath(summary_path(self.out))), [summary])
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let other commands write the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _of_part(self) -> tuple[Mapping[str, Any], dict[tuple[str, int], FinishedPrompt]] | None:
        file = self._open()
        try:
            known, prompts, whole = finished_prompts(file.readall() or b"")
        except ValueError as error:
            raise UsageError(f"--resume: {self.path} is damaged ({error}); remove it") from None
        if known is None:
            self.close()
            self.path.unlink()
            return None
        self._whole = whole
        return known, prompts

    def _of_complete(self) -> tuple[Mapping[str, Any], dict[tuple[str, int], FinishedPrompt]] | None:
        """Return the content of a file that is complete already; None if there is none."""
        summary = summary_path(self.out)
        if not self._has_rows():
            return None
        if not summary.exists():
            raise UsageError(
                f"--resume: {self.out} is there already, and no {summary.name} beside it: rlcore eval did not make it; name another --out"
            )
        try:
            told = json.loads(summary.read_bytes())
            by_prompt: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
            for line in self.out.read_bytes().splitlines():
                row = json.loads(line)
                by_prompt.setdefault((row["task"], row["prompt_index"]), []).append(row)
            prompts = {key: FinishedPrompt(*key, rows, 0, float(told["seconds"])) for key, rows in by_prompt.items()}
            return dict(told["evaluation"]), prompts
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"--resume: {self.out} or {summary} is damaged ({error}); remove both") from None

    def _has_rows(self) -> bool:
        """An empty file, such as that of mktemp, may be written."""
        return self.out.exists() and self.out.stat().st_size > 0

    def _open(self) -> FileIO:
        self._file = file = self.path.open("ab+", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"--out {self.out}: another evaluation is writing {self.path}; wait for it, or name another file") from None
        file.seek(0)
        return file

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        while line:
            line = line[self._file.write(line) :]
        os.fsync(self._file.fileno())


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, default=str).encode() + b"\n"


def _differences(known: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    old, new = flat_settings(known), flat_settings(asked)
    names = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    return [f"{name.removeprefix('settings.')} {_said(old.get(name))} (now {_said(new.get(name))})" for name in names]


def _said(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
