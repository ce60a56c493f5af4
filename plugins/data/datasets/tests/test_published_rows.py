"""Rows as they were published: each format recognises its own and no other, and what becomes of them. Ten rows each in ``rows/``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_datasets.choice_sets import ChoiceRows
from rlcore_plugin_datasets.problem_sets import Gsm8kRows, MathRows, NemotronRows, OpenR1Rows
from rlcore_plugin_datasets.reasoning_sets import (
    DeepMathRows,
    DolciRows,
    Intellect2Rows,
    Intellect3Rows,
    NemotronPostRows,
    OrzRows,
    RllmRows,
)
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
    "nemotron_post": NemotronPostRows,
    "intellect2": Intellect2Rows,
    "synthetic2": Intellect2Rows,
    "intellect3": Intellect3Rows,
    "deepmath": DeepMathRows,
    "orz": OrzRows,
    "dolci": DolciRows,
    "rllm": RllmRows,
    "choices": ChoiceRows,
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


class TestNemotronPostRows(OfPublishedRows):
    name = "nemotron_post"
    broken = (
        {"messages": [PROMPT[0], {"role": "assistant", "content": "3"}], "category": "chat", "generator": "x", "metadata": "{}"},
        {"messages": [{"role": "user", "content": "-"}], "category": "chat", "generator": "x", "metadata": '{"expected_answer": "3"}'},
        {"messages": PROMPT, "category": "math", "generator": "x", "metadata": "{"},
    )


class TestIntellect2Rows(OfPublishedRows):
    name = "intellect2"
    broken = (
        {"prompt": "1 + 2", "task_type": "reasoning_gym", "verification_info": '{"ground_truth": "3"}'},
        {"prompt": "1 + 2", "task_type": "verifiable_math", "verification_info": '{"answer": "3"}'},
        {"prompt": "1 + 2", "task_type": "verifiable_math", "verification_info": "3"},
    )


class TestSynthetic2Rows(OfPublishedRows):
    name = "synthetic2"


class TestIntellect3Rows(OfPublishedRows):
    name = "intellect3"
    broken = ({"question": "1 + 2", "answer": "", "info": "{}", "avg@8_x": 0.5},)


class TestDeepMathRows(OfPublishedRows):
    name = "deepmath"
    broken = ({"question": "1 + 2", "final_answer": "", "difficulty": 1.0, "topic": "x"},)


class TestOrzRows(OfPublishedRows):
    name = "orz"
    broken = (
        {"0": {"from": "human", "value": "1 + 2"}, "1": {"from": "assistant", "ground_truth": {"value": ""}}},
        {"0": {"from": "human", "value": "1 + 2"}, "1": {"from": "assistant", "ground_truth": None}},
        {"0": "1 + 2", "1": "3"},
    )


class TestDolciRows(OfPublishedRows):
    name = "dolci"
    broken = (
        {"prompt": "user: Write a poem.", "ground_truth": ["{}"], "dataset": ["ifeval"]},
        {"prompt": "user: 1 + 2", "ground_truth": ["3", "4"], "dataset": ["math"]},
        {"prompt": "user: ", "ground_truth": ["3"], "dataset": ["math"]},
    )


class TestRllmRows(OfPublishedRows):
    name = "rllm"
    broken = (
        {"question": "1 + 2", "ground_truth": {"target": 3, "numbers": [1, 2]}, "data_source": "countdown"},
        {"question": "1 + 2", "ground_truth": '[{"input": "1", "output": "2"}]', "data_source": "livecodebench"},
    )


class TestChoiceRows(OfPublishedRows):
    name = "choices"
    broken = (
        {"question": "1 + 2", "options": ["2", "3"], "answer": "C"},
        {"question": "1 + 2", "options": ["2", "3"], "answer_index": 2},
        {"question": "1 + 2", "choices": ["B", "A"], "answer": "B"},
        {"question": "", "choices": ["2", "3"], "answer": 1},
        {"question": "1 + 2", "choices": ["3"], "answer": 0},
    )


def test_every_format_that_is_registered_has_rows() -> None:
    registry = Registry.discover()
    owned = [spec.name for spec in registry.specs("format") if registry.owner("format", spec.name) == "rlcore-plugin-datasets"]
    assert {registry.make("format", name).__class__ for name in owned} == set(FORMATS.values())
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
        *(
            (name, "42 \\frac{1}{4} 7 8 (x-1)(x+1) 1024 5050 5\\sqrt{2} 180 4\\pi")
            for name in ("nemotron_post", "intellect2", "synthetic2", "intellect3", "deepmath", "orz", "dolci", "rllm")
        ),
        ("choices", "B C A D B B A C B A"),
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


def without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("intellect2", {"task_type": "verifiable_code"}),
        ("intellect2", {"task_type": None}),
        ("intellect3", {"info": '{"tests": "{}"}'}),
        ("deepmath", {"question": ""}),
        ("orz", {"1": {"from": "gpt", "value": "5"}}),
        ("orz", {"1": {"from": "assistant", "value": "5"}}),
        ("nemotron_post", {"messages": "What is 1 + 2?"}),
        ("dolci", {"dataset": ["code_stdio"]}),
        ("dolci", {"dataset": ["math", "gsm8k"]}),
        ("rllm", {"ground_truth": '[{"input": "1", "output": "2", "testtype": "stdin"}]'}),
        ("rllm", {"data_source": None}),
    ],
)
def test_a_row_of_almost_these_columns_is_not_recognised(name: str, change: Mapping[str, Any]) -> None:
    assert not FORMATS[name]().recognises({**published(name)[0], **change})


@pytest.mark.parametrize(
    ("name", "dropped"),
    [("intellect3", "avg@8_qwen3_4b_thinking_2507"), ("deepmath", "topic"), ("nemotron_post", "metadata"), ("dolci", "dataset")],
)
def test_a_row_without_the_column_that_marks_the_set_is_not_recognised(name: str, dropped: str) -> None:
    row = without(published(name)[0], dropped, "avg@8_qwen3_4b_instruct_2507")
    assert not FORMATS[name]().recognises(row)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("intellect2", {"verification_info": "{"}, '"verification_info" is text that is not JSON'),
        ("intellect2", {"verification_info": "[1]"}, '"verification_info" must be an object'),
        ("intellect2", {"verification_info": '{"ground_truth": ""}'}, '"verification_info.ground_truth" is empty'),
        ("intellect2", {"task_type": "code_output_prediction"}, "'code_output_prediction'"),
        ("intellect3", {"answer": None}, '"answer"'),
        ("deepmath", {"final_answer": None}, '"final_answer"'),
        ("orz", {"1": {"from": "assistant", "ground_truth": {}}}, '"1.ground_truth.value"'),
        ("nemotron_post", {"metadata": '{"problem_source": "x"}', "category": "stem"}, '"metadata" has no "expected_answer"'),
        ("nemotron_post", {"messages": [{"role": "user", "content": "-"}, {"role": "assistant", "content": "x"}]}, "leaves it out"),
        ("dolci", {"dataset": ["general-quality"]}, "'general-quality'"),
        ("rllm", {"ground_truth": None}, '"ground_truth"'),
    ],
)
def test_a_row_that_cannot_be_converted_names_the_column(name: str, change: Mapping[str, Any], words: str) -> None:
    with pytest.raises(BadRow) as caught:
        FORMATS[name]().convert({**published(name)[0], **change})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_prompt_of_a_reasoning_set_is_the_problem_alone() -> None:
    question = [{"role": "user", "content": "What is 17 + 25?"}]
    for name in ("intellect3", "deepmath", "orz", "nemotron_post", "dolci", "rllm"):
        assert FORMATS[name]().convert(published(name)[0])["messages"] == question, name
    assert FORMATS["nemotron_post"]().convert(published("nemotron_post")[1])["messages"][0]["role"] == "user", "an empty system prompt"
    assert RllmRows().convert(published("rllm")[9])["messages"][0]["content"] == "The area of a circle of radius 2?"
    assert "r1_solution_1" not in DeepMathRows().convert(published("deepmath")[0])


def test_a_gold_answer_of_many_digits_in_json_is_its_text() -> None:
    row = {**published("intellect2")[0], "verification_info": '{"ground_truth": 1' + "0" * 5000 + "}"}
    assert Intellect2Rows().convert(row)["gt_answer"] == "1" + "0" * 5000
    assert MathRows().convert({"problem": "1 + 2", "answer": -(10**9000)})["gt_answer"] == "-1" + "0" * 9000


def test_a_prompt_lists_the_choices_and_asks_for_a_letter() -> None:
    first, fifth = (ChoiceRows().convert(published("choices")[place])["messages"][0]["content"] for place in (0, 4))
    assert first == "What is 6 times 7?\n\nA. 13\nB. 42\nC. 67\nD. 1\n\nAnswer with the letter of the right choice."
    assert fifth == "Which number is prime?\nA) 4\nB) 7", "a question that lists its choices stays as it is"


@pytest.mark.parametrize(
    ("row", "letter"),
    [
        ({"options": ["A)4", "B)5"], "correct": "B"}, "B"),
        ({"choices": {"text": ["four", "five"], "label": ["1", "2"]}, "answerKey": "2"}, "B"),
        ({"choices": ["four", "five"], "answer": 0}, "A"),
        ({"options": ["four", "five"], "answer": "five"}, "B"),
        ({"options": ["four", "five"], "answer": "four", "answer_letter": "A"}, "A"),
    ],
)
def test_the_right_choice_may_be_a_letter_a_label_a_number_or_its_text(row: Mapping[str, Any], letter: str) -> None:
    assert ChoiceRows().recognises({"question": "2 + 3", **row})
    assert ChoiceRows().convert({"question": "2 + 3", **row})["gt_answer"] == letter


def test_the_mathematics_of_intellect3_has_no_info_as_published() -> None:
    row = without(published("intellect3")[0], "info")
    assert Intellect3Rows().recognises(row)
    assert Intellect3Rows().convert(row)["gt_answer"] == "42"


def test_a_row_of_dolci_that_keeps_the_columns_of_dapo_is_read_by_one_format() -> None:
    columns = {"data_source": "math_dapo", "reward_model": {"ground_truth": "42", "style": "rule"}, "solution": "42", "ability": "MATH"}
    row = {**published("dolci")[0], **columns, "source_prompt": PROMPT}
    assert [name for name, kind in FORMATS.items() if kind().recognises(row)] == ["dolci"]


@pytest.mark.parametrize("tests", ['["assert add(1, 2) == 3"]', '[{"input": "1 2", "output": "3"}]', "eJxLzs8tKEotLgYAD7wDZw=="])
def test_a_program_beside_its_tests_is_no_answer(tests: str) -> None:
    row = {"id": "x", "solution": "def add(a, b): return a + b", "prompt": "user: Add two numbers.", "ground_truth": [tests]}
    assert not any(kind().recognises(row) for kind in FORMATS.values())
    assert TrlRows().recognises(without(row, "ground_truth"))
