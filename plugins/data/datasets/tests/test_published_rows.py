"""Rows as they were published: each format recognises its own and no other, and what becomes of them. Ten rows each in ``rows/``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_datasets.problem_sets import Gsm8kRows, MathRows, NemotronRows, OpenR1Rows
from rlcore_plugin_datasets.row_parts import boxed_in
from rlcore_plugin_datasets.training_files import DapoRows, TrlRows, VerlRows

from rlcore.api.data import BadRow, RowFormat
from rlcore.testing import Registry, RowFormatSuite

ROWS = Path(__file__).parent / "rows"
FORMATS: dict[str, type[RowFormat]] = {
    "verl": VerlRows,
    "dapo": DapoRows,
    "dapo_processed": DapoRows,
    "trl": TrlRows,
    "trl_text": TrlRows,
    "openr1": OpenR1Rows,
    "gsm8k": Gsm8kRows,
    "math": MathRows,
    "nemotron": NemotronRows,
    "nemotron_rl": NemotronRows,
}
PROMPT = [{"role": "user", "content": "1 + 2"}]


def published(name: str) -> list[Mapping[str, Any]]:
    """The rows of a file, without the completion that is judged beside them."""
    rows = map(json.loads, (ROWS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
    return [{key: value for key, value in row.items() if key != "completion"} for row in rows]


class OfPublishedRows(RowFormatSuite):
    name = ""

    def make(self) -> RowFormat:
        return FORMATS[self.name]()

    def rows(self) -> Sequence[Mapping[str, Any]]:
        return published(self.name)

    @property
    def foreign(self) -> Sequence[Mapping[str, Any]]:  # type: ignore[override]
        return [row for name in FORMATS if FORMATS[name] is not FORMATS[self.name] for row in published(name)]


class TestVerlRows(OfPublishedRows):
    name = "verl"
    broken = ({"prompt": PROMPT, "reward_model": {"style": "rule"}}, {"prompt": [], "reward_model": {"ground_truth": "3"}})


class TestDapoRows(OfPublishedRows):
    name = "dapo"


class TestDapoProcessedRows(OfPublishedRows):
    name = "dapo_processed"


class TestTrlRows(OfPublishedRows):
    name = "trl"
    broken = ({"prompt": PROMPT, "solution": ""}, {"prompt": [{"role": "user", "content": [{"type": "image"}]}], "solution": "3"})


class TestTrlTextRows(OfPublishedRows):
    name = "trl_text"


class TestOpenR1Rows(OfPublishedRows):
    name = "openr1"
    broken = ({"problem": "Show that 1 = 1.", "answer": "proof", "question_type": "proof"}, {"problem": "1 + 2", "answer": ""})


class TestGsm8kRows(OfPublishedRows):
    name = "gsm8k"
    broken = ({"question": "1 + 2", "answer": "It is 3."}, {"question": "1 + 2", "answer": "It is 3.\n#### "})


class TestMathRows(OfPublishedRows):
    name = "math"
    broken = ({"problem": "1 + 2", "solution": "It is 3."}, {"problem": "1 + 2", "solution": "It is \\boxed{3."})


class TestNemotronRows(OfPublishedRows):
    name = "nemotron"
    broken = ({"problem": "1 + 2", "expected_answer": ""}, {"question": "1 + 2", "expected_answer": None})


class TestNemotronRlRows(OfPublishedRows):
    name = "nemotron_rl"


def test_every_format_that_is_registered_has_rows() -> None:
    registry = Registry.discover()
    owned = [spec.name for spec in registry.specs("format") if registry.owner("format", spec.name) == "rlcore-plugin-datasets"]
    assert sorted({name.split("_")[0] for name in FORMATS}) == sorted(owned)
    assert all(len(published(name)) == 10 for name in FORMATS)


@pytest.mark.parametrize(
    ("name", "golds"),
    [
        ("verl", "84 17 105 \\frac{3}{4} 7 (x-1)(x+1) 1024 5 80 8"),
        ("dapo", "24 58 30 1275 12 10 1 144 15 21"),
        ("dapo_processed", "24 58 30 1275 12 10 1 144 15 21"),
        ("trl", "$3$ 12 7 \\frac{1}{2} 1 5 12 $6$ 90 \\frac14"),
        ("openr1", "2 3 25\\pi 5 35 9 3\\sqrt{2} 60 -3 10"),
        ("gsm8k", "72 10 84 1,500 150 -5 19 30 33 336"),
        ("math", "10 50 2 \\left(_3,_\\frac{\\pi}{2}_\\right) \\frac{1}{3} 3 7 \\frac12 720 -1"),
        ("nemotron", "47 2 84 3 55 81 21 2 30 \\frac{1}{4}"),
    ],
)
def test_the_gold_answers_are_those_that_were_published(name: str, golds: str) -> None:
    format = FORMATS[name]()
    assert [format.convert(row)["gt_answer"] for row in published(name)] == [gold.replace("_", " ") for gold in golds.split()]


def test_the_prompt_is_as_it_was_published_and_other_columns_stay() -> None:
    first = VerlRows().convert(published("verl")[0])
    assert first["messages"] == published("verl")[0]["prompt"]
    assert (first["data_source"], first["ground_truth"], first["extra_info"]["index"]) == ("openai/gsm8k", "84", 0)
    assert "reward_model" not in first
    assert [message["role"] for message in VerlRows().convert(published("verl")[7])["messages"]] == ["system", "user"]
    assert "generations" not in OpenR1Rows().convert(published("openr1")[0])
    request = NemotronRows().convert(published("nemotron_rl")[0])["messages"]
    assert request[0]["content"].startswith("Solve the following math problem.")


def test_a_column_that_means_something_else_in_rlcore_stays_out() -> None:
    row = {"problem": "1 + 2", "answer": "3", "reward": 0.5, "id": {"a": 1}}
    assert MathRows().convert(row) == {"answer": "3", "messages": PROMPT, "gt_answer": "3"}
    assert MathRows().convert({**row, "id": 7})["id"] == 7


@pytest.mark.parametrize(
    ("truth", "gold"), [("3", "3"), (3, "3"), (2.5, "2.5"), (["3"], "3"), (["3", "4"], None), ({"target": 98, "numbers": [44, 54]}, None)]
)
def test_a_ground_truth_of_verl_is_a_gold_answer_if_it_is_one_answer(truth: object, gold: str | None) -> None:
    made = VerlRows().convert({"prompt": PROMPT, "reward_model": {"ground_truth": truth}})
    assert made.get("gt_answer") == gold
    assert made["ground_truth"] == truth


@pytest.mark.parametrize(
    "row",
    [
        {"ability": "code", "reward_model": {"ground_truth": "3"}},
        {"reward_model": {"ground_truth": '{"inputs": ["1\\n"], "outputs": ["2\\n"]}'}},
        {"reward_model": {"ground_truth": '[{"input": "1", "output": "2", "testtype": "stdin"}]'}},
        {"reward_model": {"ground_truth": {"fn_name": "f", "inputs": [], "outputs": []}}},
    ],
)
def test_verl_leaves_programs_alone(row: Mapping[str, Any]) -> None:
    assert VerlRows().recognises({"prompt": PROMPT, **row}) is False
    assert "gt_answer" not in VerlRows().convert({"prompt": PROMPT, **row}), (
        "in a file of answers and programs, no reward takes tests for one"
    )
    assert VerlRows().recognises({"prompt": PROMPT, "reward_model": {"ground_truth": "[1, 2)"}}) is True


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("first \\boxed{1}, then \\boxed{2}.", "2"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\fbox{3}", "3"),
        ("\\boxed{1} and \\fbox{4}", "4"),
        ("\\boxed{unclosed", ""),
        ("none", ""),
        ("", ""),
        ("\\boxed{}", ""),
    ],
)
def test_the_last_box_holds_the_answer(text: str, box: str) -> None:
    assert boxed_in(text) == box


def test_a_message_in_parts_is_joined_and_a_picture_is_refused() -> None:
    parts = [{"type": "text", "text": "1 +"}, {"type": "text", "text": " 2"}]
    row = {"prompt": [{"role": "user", "content": parts}], "solution": "3"}
    assert TrlRows().convert(row)["messages"] == PROMPT
    with pytest.raises(BadRow, match="trains only on text"):
        TrlRows().convert({**row, "prompt": [{"role": "user", "content": [*parts, {"type": "image"}]}]})


def test_a_csv_file_of_trl_is_read_where_the_format_is_named() -> None:
    row = {"messages": {"role": "user", "content": "1 + 1?"}, "solution": "so \\boxed{2}"}  # the CSV source has made messages of prompt
    made = TrlRows().convert(row)
    assert (made["messages"], made["gt_answer"]) == ([row["messages"]], "2")
