"""Runs parts, each in a process of its own with a limit, and writes down what came of each. Standard library only."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import LIMIT, Part
from benchmarks.gpu.results import FILE, Results
from benchmarks.gpu.setting import DOCUMENT, REPOSITORY, UNFINISHED

__all__ = ["Runner", "commit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """``path``: folders for the parts' PYTHONPATH; ``until``: monotonic time at which no part may run any more, None for none."""

    device: str
    tiny: bool
    folder: Path
    path: Sequence[str]
    say: Callable[[str], None]
    until: float | None = None

    @property
    def results(self) -> Results:
        """One line a part."""
        return Results(self.folder / FILE)

    def run(self, parts: Sequence[Part], *, again: bool = False) -> list[Part]:
        """Run those that have no line yet (``again``: all of them); return those for which no time was left."""
        done = set() if again else self.results.done()
        left = []
        for part in parts:
            if part.name in done:
                self.say(f"{part.name}: done before; --again runs it once more")
            elif not self._fits(part):
                left.append(part)
            else:
                self.say(f"{part.name}: {part.what} …")
                line = self._line(part)
                self.results.write(line)
                self.say(f"{part.name}: {line['status']} in {line['seconds']:.0f} s: {line['said']}")
        return left

    def _fits(self, part: Part) -> bool:
        return self.until is None or time.monotonic() + part.seconds(tiny=self.tiny) <= self.until

    def _line(self, part: Part) -> dict[str, Any]:
        log, answer = self.folder / "logs" / f"{part.name}.log", self.folder / f".{part.name}.answer"
        log.parent.mkdir(parents=True, exist_ok=True)
        answer.unlink(missing_ok=True)
        start = time.monotonic()
        outcome = self._outcome(part, log, answer)
        head = {"part": part.name, "what": part.what, "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit()}
        return {**head, "device": self.device, "tiny": self.tiny, "seconds": round(time.monotonic() - start, 1), **outcome}

    def _outcome(self, part: Part, log: Path, answer: Path) -> dict[str, Any]:
        limit = LIMIT if self.until is None else min(LIMIT, self.until - time.monotonic())
        # Made and removed here: a part that is killed cannot remove it.
        with tempfile.TemporaryDirectory(prefix="rlcore-gpu-", ignore_cleanup_errors=True) as scratch:
            code = self._wait(self._command(part, scratch, answer, time.monotonic() + limit), log, limit)
        why = f"ran longer than {limit:.0f} s" if code is None else f"ended with {code}"
        broken = {"status": "failed", "said": f"{why}; {log} ends: {_last_line(log)}"}
        try:
            found = dict(json.loads(answer.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {"figures": {}, "rows": [], "machine": {}, **broken}
        finally:
            answer.unlink(missing_ok=True)
        return {**found, **broken} if found["status"] == UNFINISHED else found

    def _command(self, part: Part, scratch: str, answer: Path, until: float) -> list[str]:
        command = [sys.executable, "-m", "benchmarks.gpu.child", part.name, "--device", self.device, *(["--tiny"] if self.tiny else [])]
        return [*command, "--keep", str(self.folder), "--scratch", scratch, "--until", str(until), "--answer", str(answer)]

    def _wait(self, command: Sequence[str], log: Path, limit: float) -> int | None:
        """The exit code, None if the limit ended it. However this ends, by a signal to this process too, no process of the part is left."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*self.path, *filter(None, [os.environ.get("PYTHONPATH")])])}
        environment |= {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
        with log.open("w", encoding="utf-8") as sink:
            process = subprocess.Popen(
                command, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )
            try:
                return process.wait(limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)


def commit() -> str | None:
    """Of the checkout, with "-dirty" if a file differs or is new, but for the page that a run writes itself. None if there is no git or no
    history, as on a machine to which only files were copied, even into another repository."""
    top, short = (_git("rev-parse", *words) for words in (("--show-toplevel",), ("--short", "HEAD")))
    changed = _git("status", "--porcelain", "--", ".", f":(exclude){DOCUMENT.relative_to(REPOSITORY).as_posix()}")
    if not top or not short or changed is None or Path(top).resolve() != REPOSITORY:
        return None
    return f"{short}-dirty" if changed else short


def _git(*words: str) -> str | None:
    """What git says of the checkout; None if it says nothing but an error, or is not there."""
    try:
        done = subprocess.run(["git", "--no-optional-locks", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part and whatever it started: its process group is its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(log: Path) -> str:
    """The last line that names an error, the last one where none does."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return [*lines, *errors][-1][:200] if lines else "(nothing)"
