"""How many files of this repository does a step cross? ``python tools/entered_files.py``.

Counts the files of ``rlcore/`` and ``plugins/`` whose code is run: during one update of a local run at staleness 0 (the third of the
quickstart's; from the wait for its batch to its line in metrics.jsonl), and during ``rlcore train … -lr 2e-4 --dry-run`` in a fresh
process, the files that it imports included. Of the update also the functions that are called and the threads that call them. ``--list``
names the files. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STEP = 3


def main() -> int:
    """Trace both, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the files, too")
    parser.add_argument("--dry-run-of", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.dry_run_of:
        print(json.dumps(sorted(_dry_run(args.dry_run_of))))
        return 0
    with tempfile.TemporaryDirectory(prefix="rlcore-entered-") as folder:
        demo = Path(folder) / "demo"
        step = _step(demo)
        found = {"step": step.files, "dry_run": _in_a_fresh_process(demo)}
    if args.list:
        for what, files in found.items():
            print(f"{what}:", *sorted(files), sep="\n  ")
    counts = {what: len(files) for what, files in found.items()}
    print(json.dumps({**counts, "step_functions": len(step.functions), "step_threads": len(step.threads)}))
    return 0


@dataclass
class Entered:
    """Paths below the root, functions (path, line, name), and names of the threads that called them."""

    files: set[str] = field(default_factory=set)
    functions: set[tuple[str, int, str]] = field(default_factory=set)
    threads: set[str] = field(default_factory=set)

    def clear(self) -> None:
        """Forget all."""
        for found in (self.files, self.functions, self.threads):
            found.clear()


@contextlib.contextmanager
def _traced(entered: Entered) -> Iterator[None]:
    """Note every function of the repository that is called, in this thread and in those that start meanwhile."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            path = Path(code.co_filename).relative_to(ROOT)
            if path.parts[0] in ("rlcore", "plugins"):
                entered.files.add(str(path))
                entered.functions.add((str(path), code.co_firstlineno, code.co_qualname))
                entered.threads.add(threading.current_thread().name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _step(demo: Path) -> Entered:
    from rlcore.cli import main as rlcore
    from rlcore.runtime.one_process import OneProcess
    from rlcore.runtime.training_run import TrainingRun

    entered = Entered()
    made, waited, recorded = OneProcess.__init__, OneProcess.next_batch, TrainingRun._record
    tracing = contextlib.ExitStack()

    def make(crew: OneProcess, *arguments: Any) -> None:
        tracing.enter_context(_traced(entered))  # before its threads start
        made(crew, *arguments)

    def next_batch(crew: OneProcess) -> bool:
        if crew.status().version == STEP - 1:
            entered.clear()
        return waited(crew)

    def record(run: TrainingRun, update: Any) -> None:
        recorded(run, update)
        if update.version == STEP:
            tracing.close()

    OneProcess.__init__, OneProcess.next_batch, TrainingRun._record = make, next_batch, record  # type: ignore[method-assign]
    try:
        _quiet(rlcore, ["quickstart", str(demo), "--max-steps", str(STEP), "--eval-interval", "100", "--max-staleness", "0"])
    finally:
        OneProcess.__init__, OneProcess.next_batch, TrainingRun._record = made, waited, recorded  # type: ignore[method-assign]
    return entered


def _in_a_fresh_process(demo: Path) -> set[str]:
    command = [sys.executable, "-m", "tools.entered_files", "--dry-run-of", str(demo / "run.toml")]
    return set(json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout))


def _dry_run(file: str) -> set[str]:
    entered = Entered()
    with _traced(entered):
        from rlcore.cli import main as rlcore

        _quiet(rlcore, ["train", file, "-lr", "2e-4", "--dry-run"])
    return entered.files


def _quiet(rlcore: Any, words: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = rlcore(words)
    if code:
        raise SystemExit(f"rlcore {' '.join(words)} ended with exit code {code}:\n{said.getvalue()}")


if __name__ == "__main__":
    sys.exit(main())
