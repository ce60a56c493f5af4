"""Which tests ``--again`` forgives: those of ``forgiven.toml`` that pass alone, for two weeks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

__all__ = ["Leash", "LeashError"]

FILE = Path(__file__).with_name("forgiven.toml")
MOST, LONGEST = 5, timedelta(days=14)


class LeashError(ValueError):
    """Why the list is refused, in one sentence."""


@dataclass(frozen=True)
class Leash:
    """The entries of the list: id of a test, with its case or without -> reason."""

    entries: dict[str, str]

    @classmethod
    def load(cls, file: Path = FILE, today: date | None = None) -> Leash:
        """LeashError if it has too many entries, or one that is too old or says too little."""
        try:
            entries = tomllib.loads(file.read_text(encoding="utf-8")).get("forgiven", []) if file.is_file() else []
        except ValueError as error:
            raise LeashError(f"{file.name} is no TOML: {error}") from error
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise LeashError(f"{file.name}: forgiven is no list of tables; begin each entry with [[forgiven]]")
        if len(entries) > MOST:
            raise LeashError(
                f"{file.name} forgives {len(entries)} tests, and at most {MOST} are allowed; mend {len(entries) - MOST} of them"
            )
        for entry in entries:
            if fault := _fault(entry, today or date.today()):
                raise LeashError(f"{file.name}: {entry.get('test', 'an entry without test')} {fault}")
        return cls({entry["test"]: entry["reason"] for entry in entries})

    def forgives(self, test: str) -> bool:
        """Whether an entry names this test."""
        return any(test == one or test.startswith(f"{one}[") for one in self.entries)

    def unforgiven(self, tests: Iterable[str]) -> list[str]:
        """One sentence for each of these tests, which passed alone, that no entry names."""
        return [
            f"{test} fails beside other tests and passes alone, and {FILE.parent.name}/{FILE.name} does not forgive it: mend it, or add it "
            f"there with a reason and today's date"
            for test in tests
            if not self.forgives(test)
        ]


def _fault(entry: dict[str, Any], today: date) -> str:
    if missing := [key for key in ("test", "reason", "date") if not str(entry.get(key, "")).strip()]:
        return f"has no {missing[0]}; write it"
    if not re.fullmatch(r"[^:*]+\.py(::\w+)+(\[.*\])?", str(entry["test"]), re.DOTALL):
        return "is no id of one test; write tests/path/test_file.py::test_name, or with its case in brackets"
    if type(entry["date"]) is not date:
        return f"is dated {entry['date']!r}, which is no date; write date = {today}"
    if entry["date"] > today:
        return f"is dated {entry['date']}, and today is {today}; write the day on which it was first forgiven"
    if entry["date"] < today - LONGEST:
        return f"is forgiven since {entry['date']}, longer than {LONGEST.days} days; mend it and remove the entry"
    return ""
