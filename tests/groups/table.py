"""The table of groups: which test belongs to which."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.groups.tree import named

__all__ = ["KINDS", "Group", "Table", "TableError"]

KINDS = ("full", "engine", "nightly")
MOST_MINUTES = 10
FILE = Path(__file__).with_name("table.toml")
_MENTIONS = {"full": re.compile(r"mark\.full\b"), "nightly": re.compile(r"mark\.nightly\b"), "engine": re.compile("")}


class TableError(ValueError):
    """What is wrong in the table, in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """One entry of the table; its fields are explained there."""

    name: str
    kind: str
    paths: tuple[str, ...]
    minutes: float
    match: str = ""
    environments: tuple[str, ...] = ()
    inside: bool = False
    alone: bool = False
    after: str = ""

    def names_file(self, path: str) -> bool:
        """Whether the file of a test is one of ``paths``."""
        return any(named([path], pattern) for pattern in self.paths)

    @property
    def stated(self) -> str:
        """Everything that decides what it runs, and how."""
        return repr((self.kind, self.paths, self.match, self.environments, self.inside, self.alone))


@dataclass(frozen=True)
class Table:
    """All groups, and the skips that a whole run may have: (pattern of the reason, why)."""

    groups: tuple[Group, ...]
    skips: tuple[tuple[str, str], ...] = field(default=())

    @classmethod
    def load(cls, file: Path = FILE) -> Table:
        """TableError for an entry that is wrong."""
        text = tomllib.loads(file.read_text(encoding="utf-8"))
        groups = tuple(_group(kind, name, entry) for kind in KINDS for name, entry in text.get(kind, {}).items())
        twice = {one.name for one in groups if [other.name for other in groups].count(one.name) > 1}
        if twice:
            raise TableError(f"{file.name} has two groups named {', '.join(sorted(twice))}; give one of them another name")
        return cls(groups, tuple((entry["reason"], entry["why"]) for entry in text.get("skip", ())))

    def named(self, name: str) -> Group:
        """TableError for a name that it lacks."""
        for group in self.groups:
            if group.name == name:
                return group
        raise TableError(f"there is no group {name}; make groups lists them: {', '.join(group.name for group in self.groups)}")

    def of(self, kind: str) -> list[Group]:
        """Its groups, in the order of the table."""
        return [group for group in self.groups if group.kind == kind]

    def group_of(self, test: str, marks: Iterable[str]) -> Group | None:
        """The group of a test (its id, as pytest writes it); None for a fast one and for one that no group names."""
        path = test.partition("::")[0]
        kind = self.kind_of(path, marks)
        return next((one for one in self.of(kind) if one.names_file(path) and re.search(one.match, test)), None)

    def kind_of(self, path: str, marks: Iterable[str]) -> str:
        """Of a test; "" for a fast one."""
        if "nightly" in marks:
            return "nightly"
        if any(group.names_file(path) for group in self.of("engine")):
            return "engine"
        return "full" if "full" in marks else ""

    def files(self, group: Group, paths: Iterable[str], read: Callable[[str], str]) -> list[str]:
        """The files of tests that may hold one of this group: their text, or a conftest beside them, has the marker's name."""
        tests = [path for path in paths if _is_test(path) and group.names_file(path)]
        if group.kind == "full":
            tests = [path for path in tests if self.kind_of(path, ()) != "engine"]
        if not group.match:  # a group without one has what those above it leave
            above = [one for one in self.of(group.kind)[: self.of(group.kind).index(group)] if not one.match]
            tests = [path for path in tests if not any(one.names_file(path) for one in above)]
        mentions, known = _MENTIONS[group.kind], set(paths)
        beside = {path: f"{path.rpartition('/')[0]}/conftest.py" for path in tests}
        return sorted(
            path for path in tests if mentions.search(read(path)) or (beside[path] in known and mentions.search(read(beside[path])))
        )


def _group(kind: str, name: str, entry: dict[str, Any]) -> Group:
    known = set(Group.__dataclass_fields__) - {"name", "kind"}
    if unknown := sorted(set(entry) - known):
        raise TableError(f"group {name} sets {unknown[0]}, which no group has; the first lines of table.toml list what there is")
    if missing := [key for key in ("paths", "minutes") if key not in entry]:
        raise TableError(f"group {name} sets no {missing[0]}; write it into tests/groups/table.toml")
    if kind == "nightly" and entry["minutes"] > MOST_MINUTES:
        raise TableError(f"group {name} takes {entry['minutes']} minutes, and a nightly group at most {MOST_MINUTES}; split it by match")
    made = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Group(name=name, kind=kind, **made)


def _is_test(path: str) -> bool:
    return path.rpartition("/")[2].startswith("test_") and path.endswith(".py")
