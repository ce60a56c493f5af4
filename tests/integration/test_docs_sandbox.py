"""docs/sandbox.md is run: its first example, and the SQL reward exactly as printed, on right, wrong, hostile and endless queries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlcore.api import Message, Outcome, Reward, RewardInput

PAGE = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text(encoding="utf-8")
SQL = re.search(r"<!-- test: sql_reward.py -->\n```python\n(?P<text>.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FIRST = re.search(r"```python\n(?P<text>.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TABLES = "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), (2), (3);"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def test_the_first_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert FIRST is not None
    exec(FIRST["text"], {})
    assert capsys.readouterr().out == "b'2\\n' 0 None\n"


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("SELECT sum(n) FROM t", Outcome.OK),
        ("SELECT count(n) FROM t", Outcome.WRONG),
        ("SELEC", Outcome.WRONG),
        ("ATTACH '/etc/x.db' AS other; SELECT 6", Outcome.WRONG),
        (ENDLESS, Outcome.WRONG),
    ],
)
def test_the_sql_reward(query: str, outcome: Outcome) -> None:
    assert SQL is not None
    names: dict[str, Any] = {}
    exec(SQL["text"], names)
    reward: Reward = names["SqlReward"]()
    reward.open()
    try:
        columns = {"tables": TABLES, "rows": [[6]]}
        score = reward.score(RewardInput(messages=(Message(role="user", content="?"),), columns=columns, text=f"```sql\n{query}\n```"))
    finally:
        reward.close()
    assert score.outcome is outcome
    assert (score.reason == "limit: cpu") == (query == ENDLESS)
