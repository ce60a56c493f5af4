"""`make bench-algorithms`: every registered recipe learns the quickstart's task, three seeds each, beside a control with a random reward.

A process a run, a line a result in ``benchmarks/results/algorithms.jsonl``; what is there is not run again, and must be of the same code.
Ends with the table, which also goes into ``docs/explanation/recipes.md``, and one JSON object as the last line. Exit code 0: every row
ran and passes; 1: not; 2: bad usage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

import tomli_w
from rlcore_plugin_quickstart.assets import prepare

from benchmarks.algorithms_plan import CONTROL, UPDATES, Row, Run, key_of, rows, runs_in_order
from benchmarks.algorithms_source import Source, read_source, refuse_foreign, refuse_mixed, refuse_other
from benchmarks.algorithms_table import (
    append_result,
    lines_of,
    of_this_table,
    read_results,
    split_page,
    stdout_to_stderr,
    table_text,
    write_page,
)
from rlcore import __version__
from rlcore.contracts.errors import RlcoreError, RunError, UsageError
from rlcore.registry.plugin_registry import Registry

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "benchmarks" / ".cache"
RESULTS = ROOT / "benchmarks" / "results" / "algorithms.jsonl"
PAGE = ROOT / "docs" / "explanation" / "recipes.md"
INTERRUPTED = 130
_PROGRAM = """\
import json, resource, sys
from rlcore.cli import main
code = main()
spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({"cpu_seconds": round(sum(usage.ru_utime + usage.ru_stime for usage in spent), 1)}))
sys.exit(code)
"""
"""The command, and what it cost beside whatever else this machine was doing: the last line."""
_QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


@dataclass
class Children:
    """The training processes under way, ended together."""

    running: set[subprocess.Popen[str]] = field(default_factory=set)

    def call(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run ``rlcore`` with ``words`` on one thread; exit code, stdout and stderr."""
        with subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *words],
            cwd=ROOT,
            env={**os.environ, **_QUIET},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            self.running.add(child)
            out, err = child.communicate()
            self.running.discard(child)
            return child.returncode, out, err

    def end(self) -> None:
        """Ask all of them to stop."""
        for child in list(self.running):
            child.terminate()


def train(run: Run, assets: Path, children: Children) -> dict[str, Any]:
    """Make one run and return its figures; UsageError where its settings are refused, RunError where it breaks off."""
    folder = CACHE / "runs" / "".join(letter if letter.isalnum() else "-" for letter in str(run))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = run.settings(assets, folder)
    (folder / "run.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    code, out, err = children.call(["train", str(folder / "run.toml"), "--json"])
    if code:
        sentence = (err.strip().splitlines() or [f"exit code {code}"])[-1].removeprefix("error: ")
        raise UsageError(sentence) if code == UsageError.exit_code else RunError(sentence)
    summary, spent = map(json.loads, out.splitlines()[-2:])
    if summary["steps"] != UPDATES:
        raise RunError(f"ended after {summary['steps']} of {UPDATES} updates, its prompts used up; raise run.num_episodes in COMMON")
    record = {
        **run.identity(),
        "base": summary["accuracy_before"],
        "final": summary["accuracy_after"],
        "steps": summary["steps"],
        "seconds": round(summary["train_seconds"], 1),
        **spent,
        "lag": round(_lag(Path(summary["run"])), 3),
        "learning_rate": settings["training"]["learning_rate"],
        "rlcore": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    shutil.rmtree(folder, ignore_errors=True)
    return record


def _lag(folder: Path) -> float:
    """Mean over the updates of how many versions old the trained rollouts were."""
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return mean(float(line["staleness/mean"]) for line in metrics if "staleness/mean" in line)


@dataclass
class Sweep:
    """Runs to make with the code ``source``, and what became of them. Results go to ``results`` as they come."""

    results: Path
    jobs: int
    source: Source
    children: Children = field(default_factory=Children)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def make(self, runs: Sequence[Run], anew: set[str]) -> None:
        """Make the runs whose result is not recorded, or whose label is in ``anew``; one line of progress each."""
        records = self._read()
        refuse_other(of_this_table(records), self.source, self.results)
        recorded = {key_of(record) for record in records}
        todo = [run for run in runs if run.row.label in anew or run.key not in recorded]
        say(f"{len(runs)} runs, {len(runs) - len(todo)} of them recorded in {self.results}")
        for seed in sorted({run.seed for run in todo}):
            self._assets(seed).parent.mkdir(parents=True, exist_ok=True)
            prepare(self._assets(seed), seed, say)
        queue, started = list(todo), time.monotonic()
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                under_way: dict[Future[dict[str, Any]], Run] = {}
                while queue or under_way:
                    while queue and len(under_way) < self.jobs:
                        run = queue.pop(0)
                        under_way[pool.submit(train, run, self._assets(run.seed), self.children)] = run
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        outcome = self._settle(under_way.pop(future), future)
                        done = len(todo) - len(queue) - len(under_way)
                        left = (time.monotonic() - started) / done * (len(todo) - done)
                        say(f"[{done} of {len(todo)}, about {left / 60:.0f} min left] {outcome}")
            except (KeyboardInterrupt, RlcoreError):
                self.children.end()
                raise

    def _settle(self, run: Run, future: Future[dict[str, Any]]) -> str:
        """Record the result, or keep the sentence of why there is none."""
        try:
            record = future.result()
        except UsageError as error:
            self.refused[str(run)] = str(error)
            return f"{run}: refused, not recorded: {error}"
        except RunError as error:
            self.failed[str(run)] = str(error)
            return f"{run}: broke off, not recorded: {error}"
        self._same_code()
        append_result(self.results, {**record, "commit": self.source.commit, "code": self.source.code})
        return f"{run}: {record['base']:.3f} -> {record['final']:.3f} in {record['seconds']:.0f} s"

    def _same_code(self) -> None:
        """RunError if the checkout's code is no longer what the sweep started with: a run may have imported either."""
        told = "the code changed during a run, so the run is not recorded"
        try:
            now = read_source(ROOT).code
        except UsageError as error:
            raise RunError(f"{told}: {error}") from error
        if now != self.source.code:
            raise RunError(f"{told}: {self.source.code} at the start, {now} now; go on in a checkout of {self.source.commit[:12]}")

    def _assets(self, seed: int) -> Path:
        """The quickstart's folder for a seed, which the same code made."""
        return CACHE / self.source.code / f"seed-{seed}"

    def _read(self) -> list[Mapping[str, Any]]:
        records, note = read_results(self.results)
        if note:
            say(note)
        return records


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


def report(table: Sequence[Row], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of the rows asked for; what has no result says so."""
    found = {line.row: line for line in lines_of(records)}
    figures = [
        found[row].as_json() if row in found else {"label": row.label, "staleness": row.staleness, "seeds": 0, "verdict": "not run"}
        for row in table
    ]
    complete = all(row in found and found[row].complete for row in table)
    all_pass = complete and all(found[row].passes for row in table)
    return {"all_pass": all_pass, "complete": complete, "rows": figures}


def chosen(table: Sequence[Row], labels: Sequence[str], flag: str) -> list[Row]:
    """The rows of some labels; UsageError where one is unknown."""
    known = list(dict.fromkeys(row.label for row in table))
    for label in labels:
        if label not in known:
            raise UsageError(f"{flag} {label!r} is not a label of the table; choose from {', '.join(known)}")
    return [row for row in table if row.label in labels]


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.algorithms", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, a thread each [1]")
    parser.add_argument("--only", nargs="+", default=[], metavar="LABEL", help=f"these rows only; the control is called {CONTROL!r}")
    parser.add_argument("--again", nargs="+", default=[], metavar="LABEL", help="run these rows again; the new results count")
    parser.add_argument("--fresh", action="store_true", help="start a new table; the old results are kept beside it")
    parser.add_argument("--table", action="store_true", help="run nothing: print the table and put it into the page")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where results are kept")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="the page that holds the table")
    typed = parser.parse_args(words)
    if typed.jobs < 1:
        parser.error(f"--jobs {typed.jobs}: must be at least 1")
    if typed.table and typed.again:
        parser.error("--table runs nothing, --again runs; type one of them")
    if typed.table and typed.fresh:
        parser.error("--table runs nothing, --fresh starts anew; type one of them")
    return typed


def make_missing(typed: argparse.Namespace, table: Sequence[Row]) -> tuple[dict[str, str], dict[str, str]]:
    """Make the runs that are missing; what was refused and what broke off, each run with its sentence."""
    made = Sweep(typed.results, typed.jobs, read_source(ROOT))
    refuse_foreign(ROOT, dict(sys.modules))  # discovery has loaded every plugin
    if typed.fresh and (old := stdout_to_stderr(typed.results)):
        say(f"a new table; the old results are kept in {old}")
    made.make(runs_in_order(table), set(typed.again))
    return made.refused, made.failed


def bench(typed: argparse.Namespace) -> int:
    """Run what is missing, write the table, print it and the figures."""
    every = rows(Registry.discover().names("algo"))
    table = chosen(every, typed.only, "--only") if typed.only else every
    chosen(table, typed.again, "--again")
    split_page(typed.page)  # before hours of work, not after
    refused, failed = ({}, {}) if typed.table else make_missing(typed, table)
    records = of_this_table(read_results(typed.results)[0])
    if typed.table and not records:
        raise UsageError(f"{typed.results} holds no results, so {typed.page} is left as it is; name another file with --results")
    refuse_mixed(records, typed.results)
    text = table_text(lines_of(records))
    write_page(typed.page, text)
    figures = report(table, records) | {"refused": refused, "failed": failed}
    say(f"\n{text}\n")
    say(json.dumps(figures))
    return 0 if figures["all_pass"] else 1


def main(words: Sequence[str]) -> int:
    """The command; returns its exit code."""
    typed = arguments(words)
    try:
        return bench(typed)
    except RlcoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; what was finished is recorded, the same command (without --fresh) goes on from there", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
