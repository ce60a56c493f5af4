"""The list of tests that may fail beside others forgives one test an entry, for two weeks."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.groups.leash import Leash, LeashError

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 27)


def leash(tmp_path: Path, *entries: str) -> Leash:
    (tmp_path / "forgiven.toml").write_text("".join(f"[[forgiven]]\n{entry}\n" for entry in entries))
    return Leash.load(tmp_path / "forgiven.toml", TODAY)


def entry(test: str = "tests/test_x.py::test_it", reason: str = "seen", day: date = TODAY) -> str:
    return f'test = "{test}"\nreason = "{reason}"\ndate = {day}'


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry()] * 6, "forgives 6 tests, and at most 5 are allowed; mend 1 of them"),
        ([entry(day=TODAY - timedelta(15))], "test_it is forgiven since 2026-11-12, longer than 14 days; mend it"),
        ([entry(day=TODAY + timedelta(1))], "test_it is dated 2026-11-28, and today is 2026-11-27"),
        ([entry(reason="")], "test_it has no reason; write it"),
        ([entry(reason=" ")], "test_it has no reason; write it"),
        (['test = "x"\nreason = "y"'], "x has no date; write it"),
        ([f"{entry()[:-10]}'today'"], "test_it is dated 'today', which is no date; write date = 2026-11-27"),
        *(([entry(test)], "is no id of one test; write tests/path/test_file.py::test_name") for test in ("*", "tests/*", "a.py::test_*")),
        ([f"test = ['a']\n{entry().partition(chr(10))[2]}"], "is no id of one test"),
        (["[["], "forgiven.toml is no TOML: "),
    ],
    ids=[
        "too many",
        "too old",
        "in the future",
        "no reason",
        "spaces",
        "no date",
        "a word",
        "all",
        "a folder",
        "a file",
        "a list",
        "no TOML",
    ],
)
def test_a_list_that_forgives_too_much_is_refused(tmp_path: Path, entries: list[str], said: str) -> None:
    with pytest.raises(LeashError, match=said):
        leash(tmp_path, *entries)


@pytest.mark.parametrize(
    ("written", "test", "forgiven"),
    [
        ("tests/test_x.py::test_it", "tests/test_x.py::test_it", True),
        ("tests/test_x.py::test_it", "tests/test_x.py::test_it[1]", True),
        ("tests/test_x.py::test_it[1]", "tests/test_x.py::test_it[2]", False),
        ("tests/test_x.py::test_it", "tests/test_x.py::test_item", False),
        ("plugins/a/tests/test_x.py::TestX::test_it", "plugins/a/tests/test_x.py::TestX::test_it", True),
    ],
)
def test_an_entry_names_a_test_with_all_its_parameters_or_one(tmp_path: Path, written: str, test: str, forgiven: bool) -> None:
    list_of_one = leash(tmp_path, entry(written, day=TODAY - timedelta(14)))
    assert list_of_one.forgives(test) == forgiven
    assert len(list_of_one.unforgiven([test])) == (not forgiven)


def test_the_committed_list_was_in_order_when_it_was_written() -> None:
    """What has become too old since then is .ci/run's to say: no test fails because a day has passed."""
    written = re.findall(r"^date = (\S+)$", (ROOT / "tests/groups/forgiven.toml").read_text(encoding="utf-8"), re.MULTILINE)
    Leash.load(today=max(map(date.fromisoformat, written), default=TODAY))
