"""docs/authors/sandboxes.md is run: its first example, and the SQL reward exactly as printed, on right, wrong, hostile and endless queries;
docs/how_to/sandbox.md lists the devices that a program sees."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rlcore.api import FinishReason, Message, Outcome, Reward, RewardInput, Score
from rlcore.api.sandbox import Job, Limit, Limits, ProgramResult, SandboxOptions, open_sandbox
from tests.levels import LEVELS, missing, need

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "authors" / "sandboxes.md").read_text(encoding="utf-8")
OF_USERS = (DOCS / "how_to" / "sandbox.md").read_text(encoding="utf-8")
SQL = re.search(r"<!-- test: sql_reward.py -->\n```python\n(?P<text>.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FIRST = re.search(r"```python\n(?P<text>.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TABLES = "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), (2), (3);"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


@pytest.fixture
def any_level() -> None:
    """A machine that has no level at all cannot run the page."""
    if missing("namespaces"):
        need("landlock")


@pytest.mark.usefixtures("any_level")
def test_the_first_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert FIRST is not None
    exec(FIRST["text"], {})
    assert capsys.readouterr().out == "b'2\\n' 0 None\n"


def test_a_sandbox_is_registered_as_the_page_says() -> None:
    (text,) = re.findall(r"^```python\n(from rlcore.api import SandboxSpec.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(text, names)
    stranger = (Path(__file__).parents[1] / "stranger" / "acme_rlcore" / "__init__.py").read_text(encoding="utf-8")
    theirs: dict[str, Any] = {}
    exec(compile(stranger, "acme", "exec", dont_inherit=True), theirs)
    assert names["rlcore_register_sandboxes"]() == theirs["rlcore_register_sandboxes"]()


def test_the_page_has_every_field_of_a_job_and_of_what_ran() -> None:
    tables = {
        kind: re.findall(r"`(\w+)`", PAGE.partition(f"| field of `{kind}` |")[2].partition("\n\n")[0]) for kind in ("Job", "ProgramResult")
    }
    assert {field.name for field in (*fields(Job), *fields(Limits))} <= set(tables["Job"])
    assert {field.name for field in fields(ProgramResult)} | {"ok"} <= set(tables["ProgramResult"])
    assert all(f"`{limit}`" in PAGE for limit in Limit)
    defaults = Limits()
    assert (defaults.cpu_seconds, defaults.wall_seconds, defaults.files, defaults.processes) == (5, 10, 1024, 64), "mend the page"
    assert (defaults.memory_bytes, defaults.output_bytes, defaults.disk_bytes) == (1 << 30, 4 << 20, 64 << 20), "mend the page"


def judged(text: str, finish: FinishReason = FinishReason.STOP) -> Score:
    assert SQL is not None
    names: dict[str, Any] = {}
    exec(SQL["text"], names)
    reward: Reward = names["SqlReward"]()
    reward.open()
    try:
        columns = {"tables": TABLES, "rows": [[6]]}
        return reward.score(RewardInput(messages=(Message(role="user", content="?"),), columns=columns, text=text, finish=finish))
    finally:
        reward.close()


@pytest.mark.usefixtures("any_level")
@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("SELECT sum(n) FROM t", Outcome.OK),
        ("SELECT count(n) FROM t", Outcome.WRONG),
        ("SELEC", Outcome.WRONG),
        ("SELECT 6 -- \ud800", Outcome.WRONG),
        ("ATTACH '/etc/x.db' AS other; SELECT 6", Outcome.WRONG),
        (ENDLESS, Outcome.WRONG),
    ],
)
def test_the_sql_reward(query: str, outcome: Outcome) -> None:
    score = judged(f"```sql\n{query}\n```")
    assert score.outcome is outcome
    assert (score.reason == "limit: cpu") == (query == ENDLESS)


@pytest.mark.usefixtures("any_level")
def test_the_sql_reward_pays_for_no_cut_answer() -> None:
    score = judged("```sql\nSELECT sum(n) FROM t\n```", FinishReason.LENGTH)
    assert (score.outcome, score.value, score.reason) == (Outcome.MALFORMED, 0.0, "cut off")


SEEN = """
import os
def opens(path):
    try: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError: return False
    return True
print(*(name for name in "null zero full random urandom tty ptmx mem kmsg fuse console".split() if opens("/dev/" + name)))
print(*(name for name in ("cpuinfo", "self/status", "self/fd/0", "self/maps", "1/stat", "mounts") if opens("/proc/" + name)))
print(*(path for path in ("/etc/ld.so.cache", "/etc/passwd", "/usr/lib", "/usr/bin", "/usr/share", "/var", "/home") if opens(path)))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_what_the_page_says_can_be_seen(level: str) -> None:
    """Of devices, exactly those that the table names for the level."""
    need(level)
    (row,) = re.findall(r"^\| files of this machine \|(.*)\|(.*)\|$", OF_USERS, re.MULTILINE)
    named = re.findall(r"`(\w+)`", row[LEVELS.index(level)].partition("the devices ")[2])
    with open_sandbox(SandboxOptions(level=level)) as sandbox:
        devices, proc, paths = sandbox.run(Job(source=SEEN)).stdout.decode().splitlines()
    assert devices.split() == named
    assert proc == ("self/fd/0" if level == "namespaces" else proc)
    assert [path for path in paths.split() if f"`{path}`" not in row[LEVELS.index(level)]] == ["/usr/lib", "/usr/bin", "/usr/share"]
