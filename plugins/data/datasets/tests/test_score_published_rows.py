"""``rlcore score`` on files as they were published: JSONL, JSON, CSV and Parquet, without a word on what stands in them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from datasets import Dataset
from pyarrow import parquet

from rlcore.testing import RunTester

ROWS = Path(__file__).parent / "rows"
WRONG = {
    "verl": 3,
    "dapo": 2,
    "dapo_processed": 2,
    **dict.fromkeys(("trl", "trl_text", "openr1", "gsm8k", "math", "nemotron", "nemotron_rl", "nemotron_post"), 2),
    **dict.fromkeys(("intellect2", "synthetic2", "intellect3", "deepmath", "orz", "dolci", "rllm", "choices"), 2),
}
"""Completions of each file that are wrong, of 10; the last row of verl has two completions."""


FORMATS = {name: name for name in WRONG} | {
    "dapo_processed": "dapo",
    "trl_text": "trl",
    "nemotron_rl": "nemotron",
    "synthetic2": "intellect2",
}


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True)


def scored(tester: RunTester, file: str, *words: str) -> tuple[dict[str, int], str]:
    """Completions by outcome, and what was said."""
    done = tester.run("score", file, "--reward", "boxed", "--workers", "1", "--json", *words).assert_ok()
    return {outcome: figures["count"] for outcome, figures in done.json["outcomes"].items()}, done.stderr


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROWS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", WRONG)
def test_ten_rows_as_published_are_judged(name: str, tester: RunTester) -> None:
    tester.write_jsonl("rows.jsonl", rows(name))
    outcomes, said = scored(tester, "rows.jsonl")
    count = 11 if name == "verl" else 10
    assert outcomes == {"ok": count - WRONG[name], "wrong": WRONG[name]}, said
    assert said.count(f"rows.jsonl: read by the row format {FORMATS[name]} of rlcore-plugin-datasets") == 1


def test_parquet_json_csv_and_saved_data_sets_are_read_too(tester: RunTester) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(rows("verl")[:9]), tester.folder / "verl.parquet")
    (tester.folder / "math.json").write_text(json.dumps(rows("math")), encoding="utf-8")
    with (tester.folder / "gsm8k.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["question", "answer", "completion"])
        writer.writeheader()
        writer.writerows(rows("gsm8k"))
    Dataset.from_list(rows("openr1")).save_to_disk(tester.folder / "saved")
    assert scored(tester, "saved")[0] == {"ok": 8, "wrong": 2}
    assert scored(tester, "verl.parquet")[0] == {"ok": 7, "wrong": 2}
    assert scored(tester, "math.json")[0] == {"ok": 8, "wrong": 2}
    assert scored(tester, "gsm8k.csv")[0] == {"ok": 8, "wrong": 2}


def test_columns_by_any_name_are_read_without_a_format(tester: RunTester) -> None:
    tester.write_jsonl("rows.jsonl", [{"q": "1 + 2", "truth": {"value": 3}, "said": text} for text in ("\\boxed{3}", "\\boxed{4}")])
    columns = {"messages": "q", "gt_answer": "truth.value", "completion": "said"}
    assert scored(tester, "rows.jsonl", "--columns", json.dumps(columns))[0] == {"ok": 1, "wrong": 1}
    (tester.folder / "run.toml").write_text(
        '[[rewards]]\nname = "boxed"\n[data.columns]\nmessages = "q"\ngt_answer = "truth.value"\ncompletion = "said"\n'
    )
    done = tester.run("score", "rows.jsonl", "--config", "run.toml", "--workers", "1", "--json").assert_ok()
    assert done.json["accuracy"] == 0.5


def test_a_format_can_be_named_and_refused(tester: RunTester) -> None:
    tester.write_jsonl("rows.jsonl", rows("gsm8k"))
    assert scored(tester, "rows.jsonl", "--data-format", "gsm8k")[0] == {"ok": 8, "wrong": 2}
    tester.run("score", "rows.jsonl", "--reward", "boxed", "--strict", "--data-format", "none").assert_refused('no "messages"')
    tester.run("score", "rows.jsonl", "--reward", "boxed", "--data-format", "gsm9k").assert_refused("no row format 'gsm9k'", "gsm8k")


def test_an_audit_takes_published_rows(tester: RunTester) -> None:
    tester.write_jsonl("rows.jsonl", [row for row in rows("gsm8k") if row["completion"].endswith("{72}.")])
    judge = "def score(item):\n    return float('{' + item.columns['gt_answer'] + '}.' in item.text)\n"
    (tester.folder / "mine.py").write_text(judge, encoding="utf-8")
    done = tester.run("audit", "--reward", "./mine.py:score", "--data", "rows.jsonl", "--workers", "1", "--json")
    assert [case["finding"] for case in done.json["cases"] if case["name"] == "row 1"] == [None]
    assert done.stderr.count("read by the row format gsm8k") == 1


def test_open_reasoner_zero_s_file_holds_a_list_for_each_row(tester: RunTester) -> None:
    turns = [[row["0"], row["1"]] for row in rows("orz")[:2]]
    (tester.folder / "orz.json").write_text(json.dumps(turns), encoding="utf-8")
    done = tester.run("score", "orz.json", "--reward", "boxed", "--columns", '{"completion": "0.value"}', "--workers", "1", "--json")
    assert "read by the row format orz of" in done.assert_ok().stderr
    assert done.json["outcomes"]["malformed"]["count"] == 2, "the question has no box"


def test_a_place_in_json_is_a_column(tester: RunTester) -> None:
    info = json.dumps({"ground_truth": ["3"], "of": {"kind": "math"}})
    tester.write_jsonl("rows.jsonl", [{"q": "1 + 2", "info": info, "said": text} for text in ("\\boxed{3}", "\\boxed{4}")])
    columns = {"messages": "q", "gt_answer": "info.ground_truth.0", "completion": "said"}
    assert scored(tester, "rows.jsonl", "--columns", json.dumps(columns))[0] == {"ok": 1, "wrong": 1}


def test_the_line_to_type_is_printed_if_only_the_columns_are_known(tester: RunTester) -> None:
    tester.write_jsonl("rows.jsonl", [{"Question": "1 + 2", "meta": {}, "label": 3, "completion": "\\boxed{3}"}])
    done = tester.run("score", "rows.jsonl", "--reward", "boxed", "--workers", "1", "--strict")
    line = """--columns '{"messages": "Question", "gt_answer": "label"}'"""
    done.assert_refused(line)
    words = ["--columns", '{"messages": "Question", "gt_answer": "label"}']
    assert scored(tester, "rows.jsonl", *words)[0] == {"ok": 1}
