"""Rows of a file of completions: what is accepted, and the reason where one is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlcore_plugin_tools.score.items import Item, RowsToJudge, TextVerdict, read_items

from rlcore.api import DataError, FinishReason, Outcome, RewardSpec, Score
from rlcore.api.commands import Registry, RunConfig
from rlcore.api.data import Routes

ROUTES = Routes((RewardSpec(name="spelling", target="nowhere:at_all", summary="", requires=("gt_answer",)),))
ROW = {"messages": {"role": "user", "content": "1 + 2?"}, "gt_answer": "3", "completion": "3"}


def rows_to_judge(path: str, **data: object) -> RowsToJudge:
    return RowsToJudge(path=path, registry=Registry.discover(), config=RunConfig.model_validate({"data": data}))


def items(folder: Path, *rows: object, limit: int | None = None, needs_completion: bool = True) -> list[Item]:
    file = folder / "samples.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
    return list(read_items(rows_to_judge(str(file)), ROUTES, limit, needs_completion=needs_completion))


def test_a_row_is_a_row_of_data_with_a_completion(tmp_path: Path) -> None:
    (item,) = items(tmp_path, {**ROW, "reward": "Spelling", "level": 2, "finish": "length"})
    assert (item.texts, item.finish, item.reward, item.line, item.refused) == (("3",), FinishReason.LENGTH, "spelling", 1, "")
    assert dict(item.columns) == {"gt_answer": "3", "level": 2}
    assert item.messages[0].content == "1 + 2?"
    assert not item.several


def test_a_list_is_a_group(tmp_path: Path) -> None:
    (item,) = items(tmp_path, {**ROW, "completion": ["3", ""]})
    assert item.texts == ("3", "")
    assert item.several


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "not JSON"),
        ({**ROW, "completion": None}, 'no "completion"'),
        ({**ROW, "completion": 3}, "must be text"),
        ({**ROW, "completion": []}, "must be text"),
        ({**ROW, "completion": ["3", None]}, "must be text"),
        ({**ROW, "finish": "aborted"}, "stop or length"),
        ({**ROW, "finish": ["stop"]}, "stop or length"),
        ({**ROW, "gt_answer": None}, 'no "gt_answer"'),
        ({**ROW, "reward": "other"}, 'asks for the reward "other"'),
        ([1], "must be an object"),
    ],
    ids=str,
)
def test_a_bad_row_says_why_and_where_and_the_next_is_read(row: object, said: str, tmp_path: Path) -> None:
    bad, good = items(tmp_path, row, ROW)
    assert said in bad.refused
    assert bad.refused.startswith(f"{tmp_path / 'samples.jsonl'}:1: ")
    assert not bad.texts
    assert (good.line, good.refused) == (2, "")


def test_blank_lines_count_as_lines_and_the_limit_counts_rows(tmp_path: Path) -> None:
    assert [item.line for item in items(tmp_path, ROW, "", "nonsense", ROW, limit=2)] == [1, 3]


def test_data_for_an_audit_needs_no_completion(tmp_path: Path) -> None:
    (item,) = items(tmp_path, {key: value for key, value in ROW.items() if key != "completion"}, needs_completion=False)
    assert (item.texts, item.refused) == ((), "")


@pytest.mark.parametrize(
    ("name", "said"), [("absent.jsonl", "no such data file"), ("x.parquet", "no such data file"), (".", "not a saved")]
)
def test_a_file_that_cannot_be_read_is_refused(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        list(read_items(rows_to_judge(str(tmp_path / name)), ROUTES))


def test_a_result_row_has_no_value_where_nothing_was_judged() -> None:
    failed = TextVerdict(line=3, source="f:3", score=Score.failed(Outcome.TIMEOUT, "no verdict"), seconds=2.0).as_row()
    assert (failed["value"], failed["outcome"], failed["reason"], failed["seconds"]) == (None, "timeout", "no verdict", 2.0)
    assert "completion" not in failed


def test_a_result_row_says_everything() -> None:
    score = Score(value=2.0, accuracy=1.0, format_ok=True, parts={"a": 2.0}, parsed="3")
    assert TextVerdict(line=3, source="f:3", score=score, seconds=0.25, place=1).as_row() == {
        "line": 3,
        "completion": 1,
        "value": 2.0,
        "format_acc": 1.0,
        "ans_acc": 1.0,
        "outcome": "ok",
        "reason": "",
        "parsed": "3",
        "parts": {"a": 2.0},
        "seconds": 0.25,
    }
