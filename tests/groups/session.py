"""What is known to pass, what runs, and what is recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from tests.groups.keys import Key, Keys, cache_folder
from tests.groups.leash import Leash
from tests.groups.records import Record, Records, changed
from tests.groups.runner import Job, Result, Runner, environment_folder
from tests.groups.table import Group, Table
from tests.groups.tree import Tree, git

__all__ = ["Session", "drawn", "unwhole"]

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 3


class Session:
    """One call of ``python -m tests.groups``. A key is of the tree as it was when the session began."""

    def __init__(
        self,
        leash: Leash,
        *,
        root: Path = ROOT,
        table: Table | None = None,
        keys: Keys | None = None,
        records: Records | None = None,
        runner: Runner | None = None,
    ) -> None:
        self.table = table or Table.load()
        self._root, self._tree = root, Tree(root)
        self._keys = keys or Keys(self.table, self._tree)
        self._records = records or Records(cache_folder())
        self._runner = runner or Runner(leash, cache(environment_folder))
        self._known: dict[str, Key] = {}
        self._commit, self._clean = self._state()

    # --- what is known -------------------------------------------------------------------------------------------------

    def show(self, *, as_json: bool) -> int:
        """Every group: would it run, and why?"""
        rows = [
            {"group": one.name, "kind": one.kind, "minutes": one.minutes, "runs": self._stale_because(one)} for one in self.table.groups
        ]
        if as_json:
            print(json.dumps(rows))
            return 0
        for row in rows:
            print(f"{row['kind']:8} {row['group']:24} {row['minutes']:>4} min  {row['runs'] or 'known to pass'}")
        return 0

    def why(self, name: str, file: str) -> int:
        """Print the way from a test of the group to a file."""
        led = self._keys.why(self.table.named(name))
        if file not in led:
            print(f"group {name} does not read {file}")
            return 1
        while file:
            print(file)
            file = led[file]
        return 0

    def stale(self) -> int:
        """List the nightly groups that have not passed with today's code."""
        found = {one.name: why for one in self.table.of("nightly") if (why := self._stale_because(one))}
        print(f"{len(found)} of {len(self.table.of('nightly'))} nightly groups have not passed with today's code; make nightly runs them:")
        for name, why in found.items():
            print(f"  {name:24} {why}")
        return 0

    # --- what runs -----------------------------------------------------------------------------------------------------

    def ci(self, *, everything: bool) -> int:
        """Full and engine groups that are not known to pass, and one that is."""
        groups = [one for kind in ("full", "engine") for one in self.table.of(kind)]
        known = {} if everything else {one.name: record for one in groups if (record := self._record(one))}
        chosen = drawn(sorted(known), self._commit)
        self._tell_left_out(known, chosen)
        runs = [one for one in groups if one.name not in known or one.name == chosen]
        code = self.run(sorted(runs, key=self._seconds, reverse=True), drawn=chosen)
        self.stale()
        return code

    def nightly(self, names: Sequence[str] = ()) -> int:
        """Nightly groups that have not passed with today's code, in the order of the table; of all, or of these."""
        groups = [self.table.named(name) for name in names] or self.table.of("nightly")
        return self.run([one for one in groups if not self._record(one)])

    def run(self, groups: Sequence[Group], *, drawn: str = "", record: bool = True) -> int:
        """Run groups and ``record`` those that passed whole, each as soon as it ends."""
        self._clean = self._clean and record
        if not self._clean:
            why = "the working tree has changes that are not committed" if record else "that is for .ci/run and make nightly"
            print(f"nothing is recorded: {why}")
        jobs = [Job(one, tuple(self._keys.files(one))) for one in groups]
        told: dict[str, str] = {}
        results = self._runner.run(jobs, lambda result: told.update({result.job.group.name: self._file(result)}))
        failed = [result.job.group.name for result in results if not result.passed]
        for result in results:
            name = result.job.group.name
            said = told.get(name, "") if result.passed else "; ".join(("FAILED", *result.complaints))
            print(f"  {name:24} {result.seconds:6.0f} s  {_counted(result)}  {said}")
        if drawn in failed:
            print(
                f"{drawn} was left out as unchanged, was drawn, and failed: its key lacks something that it reads (or it fails by chance)"
            )
        print(f"groups: {len(results) - len(failed)} passed, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
        return int(bool(failed))

    def _tell_left_out(self, known: dict[str, Record], chosen: str) -> None:
        if not known:
            print("no group is left out")
        for name, record in known.items():
            why = f"nothing that it reads has changed since {record.commit[:10]}, with which it passed on {record.when[:16]}"
            print(f"left out: {name:24} {why}{'; drawn to run all the same' if name == chosen else ''}")

    # --- records -------------------------------------------------------------------------------------------------------

    def _file(self, result: Result) -> str:
        """Record a group that passed; else say why it is not recorded."""
        group = result.job.group
        if reason := unwhole(result, self._key(group), self.table.skips, self._tree.paths):
            return f"not recorded: {reason}"
        if not self._clean or self._state() != (self._commit, True):
            return "not recorded"
        when = datetime.now(UTC).isoformat(timespec="seconds")
        self._records.write(
            group.name, self._key(group), when=when, commit=self._commit, seconds=round(result.seconds, 1), counts=result.counts
        )
        return "recorded"

    def _seconds(self, group: Group) -> float:
        """What it took last. The longest begin first, so that none is alone at the end."""
        newest = self._records.newest(group.name)
        return newest.seconds if newest else 60 * group.minutes

    def _record(self, group: Group) -> Record | None:
        return self._records.find(group.name, self._key(group))

    def _stale_because(self, group: Group) -> str:
        if self._record(group):
            return ""
        if not (newest := self._records.newest(group.name)):
            return "never passed here"
        names = changed(newest, self._key(group))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return f"changed since {newest.commit[:10]}: {', '.join(names[:SHOWN])}{more}"

    def _key(self, group: Group) -> Key:
        if group.name not in self._known:
            self._known[group.name] = self._keys.of(group)
        return self._known[group.name]

    def _state(self) -> tuple[str, bool]:
        return git(self._root, "rev-parse", "HEAD").strip(), not git(self._root, "status", "--porcelain").strip()


def drawn(names: Sequence[str], commit: str) -> str:
    """One of the groups that are left out, by the commit's hash; "" of none."""
    return names[int(commit[:12], 16) % len(names)] if names else ""


def unwhole(result: Result, key: Key, skips: Iterable[tuple[str, str]], paths: frozenset[str]) -> str:
    """Why a run that passed is no proof for its key; "" if it is one."""
    if result.forgiven:
        return f"{result.forgiven[0]} failed and was forgiven"
    allowed: Callable[[str], bool] = lambda reason: any(re.search(pattern, reason) for pattern, _ in skips)  # noqa: E731
    if unlisted := [(test, reason) for test, reason in result.skipped.items() if not allowed(reason)]:
        return f"{len(unlisted)} skipped, {unlisted[0][0]}: {unlisted[0][1]}"
    if "passed" not in result.outcomes.values():
        return "no test passed"
    if outside := sorted(path for path in result.opened if path in paths and path not in key.files):
        return f"A DEFECT OF THE KEY: it opened {outside[0]}{' and others' if outside[1:] else ''}, which the key does not know"
    return ""


def _counted(result: Result) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in result.counts.items()) or "no tests ran"
