"""Rows under other names and in other formats: which format reads a file, what is said of it, what a plugin's faults become."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlcore.api import RowFormatSpec
from rlcore.api.data import BadRow, DataError, RowFormat, read_rows
from rlcore.config.run_config import DataSection, RunConfig
from rlcore.contracts.errors import PluginError
from rlcore.data import load_eval, load_prompts
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import RowFormatSuite
from rlcore.testing.data.fake_data import FakeFormat

PROMPT = {"role": "user", "content": "1 + 2"}


class Sums(RowFormat):
    def recognises(self, row: Mapping[str, Any]) -> bool:
        return "sum" in row

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(row.get("sum"), str):
            raise BadRow('the row has no "sum"')
        return {"messages": {"role": "user", "content": row["sum"]}, "gt_answer": str(len(row["sum"]))}


class Breaks(Sums):
    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        raise KeyError("sum")


class Doubts(Sums):
    def recognises(self, row: Mapping[str, Any]) -> bool:
        raise TypeError("what is this")


class Lists(Sums):
    def convert(self, row: Mapping[str, Any]) -> Any:
        return [row]


def registry_with(**formats: type[RowFormat]) -> Registry:
    registry = Registry.discover([])
    for name, format in formats.items():
        registry.add("format", format, name=name)
    return registry


def written(folder: Path, *rows: object) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read(path: str, registry: Registry, **data: object) -> list[object]:
    return [row for _, row in read_rows(path, registry, DataSection.model_validate(data))]


def test_the_one_format_that_recognises_the_first_row_reads_the_file_and_that_is_said_once(tmp_path: Path) -> None:
    path, said = written(tmp_path, {"sum": "1+2"}, {"sum": "4"}, {"other": 1}), list[str]()
    rows = [row for _, row in read_rows(path, registry_with(sums=Sums), say=said.append)]
    assert rows[:2] == [{"messages": {"role": "user", "content": text}, "gt_answer": gold} for text, gold in (("1+2", "3"), ("4", "1"))]
    assert str(rows[2]) == 'the row has no "sum"'
    assert len(said) == 1
    assert said[0].startswith(f"{path}: read by the row format sums of ")


def test_rows_of_rlcore_are_shown_to_no_format(tmp_path: Path) -> None:
    path = written(tmp_path, {"messages": PROMPT, "gt_answer": "3", "sum": "x"}, {"sum": "4"})
    assert read(path, registry_with(doubts=Doubts))[0] == {"messages": PROMPT, "gt_answer": "3", "sum": "x"}


def test_a_conversation_that_ends_with_an_answer_is_shown_to_the_formats(tmp_path: Path) -> None:
    path = written(tmp_path, {"messages": [PROMPT, {"role": "assistant", "content": "3"}], "sum": "4"})
    assert read(path, registry_with(sums=Sums))[0] == {"messages": {"role": "user", "content": "4"}, "gt_answer": "1"}


def test_two_formats_that_recognise_a_row_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows.jsonl: the row formats also and sums all recognise its rows; .*--data-format also"):
        read(written(tmp_path, {"sum": "4"}), registry_with(sums=Sums, also=Sums))


def test_a_row_that_no_format_recognises_says_so(tmp_path: Path) -> None:
    first, second = read(written(tmp_path, {"what": "4"}, {"what": "5"}), registry_with(sums=Sums))
    assert isinstance(first, BadRow)
    assert 'no "messages" (it has "what"), and no installed row format knows it (1 were tried' in str(first)
    assert isinstance(second, BadRow)


def test_none_takes_rows_as_they_are_and_a_name_asks_that_format_alone(tmp_path: Path) -> None:
    path = written(tmp_path, {"sum": "4", "messages": PROMPT})
    assert read(path, registry_with(sums=Sums), format="none") == [{"sum": "4", "messages": PROMPT}]
    assert read(path, registry_with(sums=Sums, also=Sums), format="sums")[0] == {
        "messages": {"role": "user", "content": "4"},
        "gt_answer": "1",
    }
    with pytest.raises(PluginError, match="there is no row format 'soms', did you mean 'sums'"):
        read(path, registry_with(sums=Sums), format="soms")


@pytest.mark.parametrize(
    ("format", "said"),
    [
        (Breaks, "the row format sums of .* failed \\(KeyError: 'sum'\\); fix the plugin"),
        (Doubts, "failed \\(TypeError: what is this\\)"),
        (Lists, "turned a row into a list, not a mapping"),
    ],
)
def test_a_broken_format_is_one_sentence(format: type[RowFormat], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read(written(tmp_path, {"sum": "4"}), registry_with(sums=format))


# --- columns -------------------------------------------------------------------------------------------------------------


def test_columns_are_found_in_objects_and_lists_and_under_names_with_dots(tmp_path: Path) -> None:
    row = {"ask": "1 + 2", "truth": {"all": [{"answer": 3}]}, "a.b": "dotted", "a": {"b": "nested"}}
    columns = {"messages": "ask", "gt_answer": "truth.all.0.answer", "unit": "a.b"}
    (made,) = read(written(tmp_path, row), registry_with(), columns=columns)
    assert made == {**row, "messages": PROMPT, "gt_answer": "3", "unit": "dotted"}


@pytest.mark.parametrize("text", ['{"all": [{"answer": 3}]}', ' {"all": "[{\\"answer\\": \\"3\\"}]"}'])
def test_columns_are_found_in_json_texts(tmp_path: Path, text: str) -> None:
    columns = {"messages": "ask", "gt_answer": "info.all.0.answer"}
    (made,) = read(written(tmp_path, {"ask": "1 + 2", "info": text}), registry_with(), columns=columns)
    assert (made["messages"], made["gt_answer"]) == (PROMPT, "3")  # type: ignore[index]


def test_a_chat_that_is_a_json_text_is_read_as_a_chat(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "1 + 2"}]
    (made,) = read(written(tmp_path, {"ask": json.dumps(chat), "a": "3"}), registry_with(), columns={"messages": "ask", "gt_answer": "a"})
    assert made["messages"] == chat  # type: ignore[index]
    (made,) = read(written(tmp_path, {"ask": "[1, 2]", "a": "3"}), registry_with(), columns={"messages": "ask", "gt_answer": "a"})
    assert made["messages"] == {"role": "user", "content": "[1, 2]"}  # type: ignore[index]


@pytest.mark.parametrize("text", ["no JSON", "{", '{"all": []}', "3", "[" * 100_000])
def test_a_place_that_a_json_text_lacks_is_named(tmp_path: Path, text: str) -> None:
    columns = {"messages": "ask", "gt_answer": "info.all.0.answer"}
    (bad,) = read(written(tmp_path, {"ask": "1 + 2", "info": text}), registry_with(), columns=columns)
    assert str(bad).startswith('the row has no "info.all.0.answer", which [data.columns] names for "gt_answer"')


def test_a_whole_number_of_many_digits_becomes_the_text_of_a_gold_answer(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"q": "1 + 2", "a": -1' + "0" * 5000 + "}", encoding="utf-8")
    (made,) = read(str(path), registry_with(), columns={"messages": "q", "gt_answer": "a"})
    assert made["gt_answer"] == "-1" + "0" * 5000  # type: ignore[index]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"question": "1 + 2", "answer": "3"}, '{"messages": "question", "gt_answer": "answer"}'),
        ({"Problem": "1 + 2", "Answer": 3}, '{"messages": "Problem", "gt_answer": "Answer"}'),
        ({"prompt": [PROMPT], "ground_truth": ["3"]}, '{"messages": "prompt", "gt_answer": "ground_truth.0"}'),
        (
            {"prompt": "x", "verification_info": '{"ground_truth": "3"}'},
            '{"messages": "prompt", "gt_answer": "verification_info.ground_truth"}',
        ),
        ({"input": [PROMPT], "output": "long"}, '{"messages": "input"}'),
        ({"problem": "", "question": "1 + 2", "answer": None, "target": 3}, '{"messages": "question", "gt_answer": "target"}'),
    ],
)
def test_the_line_to_type_is_in_the_reason_if_the_columns_are_known(tmp_path: Path, row: Mapping[str, Any], line: str) -> None:
    (bad,) = read(written(tmp_path, row), registry_with(sums=Sums))
    assert isinstance(bad, BadRow)
    assert f"type --columns '{line}'" in str(bad)
    (made,) = read(written(tmp_path, row), registry_with(sums=Sums), columns=json.loads(line))
    assert not isinstance(made, BadRow)


def test_columns_come_before_formats_and_outlive_them(tmp_path: Path) -> None:
    (made,) = read(written(tmp_path, {"text": "4", "level": 7}), registry_with(sums=Sums), columns={"sum": "text", "gt_answer": "level"})
    assert made == {"messages": {"role": "user", "content": "4"}, "gt_answer": "7", "sum": "4"}


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    good = {"messages": PROMPT, "gt_answer": "3"}
    bad, kept, null = read(
        written(tmp_path, {"messages": PROMPT, "answer": "3"}, good, {"messages": PROMPT, "solution": None}),
        registry_with(),
        columns={"gt_answer": "solution"},
    )
    assert str(bad).startswith('the row has no "solution", which [data.columns] names for "gt_answer" (it has "messages", "answer")')
    assert kept == good, "a row that has the column under its own name is as it was"
    assert null == {"messages": PROMPT, "solution": None}


def test_a_run_reads_training_and_evaluation_rows_so(tmp_path: Path) -> None:
    path, registry = written(tmp_path, {"q": "1 + 2", "a": 3}), registry_with()
    data = {"dataset": path, "columns": {"messages": "q", "gt_answer": "a"}}
    config = RunConfig.model_validate({"data": data})
    assert load_prompts(config, [], registry).prompts[0].columns["gt_answer"] == "3"
    assert load_eval(path, [], registry, config.data).prompts[0].messages[0].content == "1 + 2"


def test_a_spec_with_options_is_refused() -> None:
    with pytest.raises(ValueError, match="a row format has no options"):
        RowFormatSpec(name="a", target="m:C", summary="", config="m:Options")


# --- the suite -----------------------------------------------------------------------------------------------------------


class TestFakeFormat(RowFormatSuite):
    foreign = ({"letter": "a"},)
    broken = ({"fake": ""},)

    def make(self) -> RowFormat:
        return FakeFormat()

    def rows(self) -> list[Mapping[str, Any]]:
        return [{"fake": "a"}, {"fake": "b"}]


class Greedy(FakeFormat):
    def recognises(self, row: Mapping[str, Any]) -> bool:
        return True


class Shy(FakeFormat):
    def recognises(self, row: Mapping[str, Any]) -> bool:
        return False


class Careless(FakeFormat):
    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"messages": {"role": "user", "content": row["fake"]}, "gt_answer": row["fake"]}


class Spoils(FakeFormat):
    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        made = super().convert(row)
        row.pop("fake")  # type: ignore[attr-defined]
        return made


class SaysNothingWhole(FakeFormat):
    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"messages": super().convert(row)["messages"]}


@pytest.mark.parametrize(
    ("format", "test"),
    [
        (Greedy, "test_its_rows_are_recognised_and_others_are_not"),
        (Shy, "test_its_rows_are_recognised_and_others_are_not"),
        (SaysNothingWhole, "test_every_row_becomes_one_of_rlcore"),
        (Spoils, "test_a_row_says_the_same_again_and_is_not_changed"),
        (Careless, "test_a_row_that_cannot_be_converted_is_a_bad_row"),
    ],
)
def test_a_broken_format_fails_its_suite(format: type[RowFormat], test: str) -> None:
    class Of(TestFakeFormat):
        def make(self) -> RowFormat:
            return format()

    with pytest.raises((AssertionError, KeyError)):
        getattr(Of(), test)()


def test_a_broken_first_row_does_not_cost_the_rows_behind_it(tmp_path: Path) -> None:
    said: list[str] = []
    path = written(tmp_path, {"total": 3}, {"sum": "1+1"}, {"sum": 4}, {"sum": "2+2"})
    rows = list(read_rows(path, registry_with(sums=Sums), say=said.append))
    assert [isinstance(row, BadRow) for _, row in rows] == [True, False, True, False]
    assert len(said) == 1
    assert "sums" in said[0]
    with pytest.raises(DataError, match=r'rows.jsonl:1: the row has no "messages".*and 1 more bad row'):
        load_prompts(RunConfig.model_validate({"data": {"dataset": [path]}}), [], registry_with(sums=Sums))
