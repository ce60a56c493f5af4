"""Which key of a group passed, and when: one JSON file for each, in the user's cache folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.groups.keys import Key

__all__ = ["Record", "Records"]

KEPT = 20
"""Records of a group: with the newest ones a branch finds its own again."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One whole run of a group that passed."""

    when: str
    commit: str
    seconds: float
    counts: dict[str, int]
    files: dict[str, str]
    facts: dict[str, str]


class Records:
    """Of one cache folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, group: str, key: Key) -> Record | None:
        """The record of this key."""
        return _read(self._folder / group / f"{key.text}.json")

    def newest(self, group: str) -> Record | None:
        """Of any key: what changed since then is what its files and facts differ in."""
        found = [record for path in self._files(group) if (record := _read(path))]
        return max(found, key=lambda record: record.when, default=None)

    def write(self, group: str, key: Key, **told: Any) -> None:
        """File a run under its key, and drop all but the newest records of the group."""
        file = self._folder / group / f"{key.text}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".new")
        written.write_text(json.dumps(asdict(Record(files=key.files, facts=key.facts, **told))), encoding="utf-8")
        written.replace(file)
        for old in sorted(self._files(group), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            old.unlink()

    def _files(self, group: str) -> list[Path]:
        return list((self._folder / group).glob("*.json"))


def changed(record: Record, key: Key) -> list[str]:
    """Files and facts of a key that are not those of a record."""
    now, then = {**key.files, **key.facts}, {**record.files, **record.facts}
    return sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))


def _read(file: Path) -> Record | None:
    try:
        return Record(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # none, or of another format: the group runs
        return None
