"""Rows that can be read and make no sense, and honest rows that look like them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.specs import RewardSpec
from rlcore.data.row_sense import unwrapped, why_invalid, why_no_answer
from rlcore.data.rows import BadRow, Routes, parse_row
from rlcore.registry.plugin_registry import Registry

ONE_ANSWER = RewardSpec(name="exact", target="m:Exact", summary="", requires=("gt_answer",), gold="answer")
UNDECLARED = RewardSpec(name="mine", target="m:Mine", summary="", requires=("gt_answer",))
ANY_TEXT = RewardSpec(name="raw", target="m:Raw", summary="", requires=("gt_answer",), gold="text")


def gold_of(gold: str, *specs: RewardSpec, question: str = "How many?", **columns: Any) -> Any:
    row = {"messages": {"role": "user", "content": question}, "gt_answer": gold, **columns}
    return parse_row(row, index=0, default_id="t:1", source="t.jsonl:1", routes=Routes(specs)).columns["gt_answer"]


# --- a JSON list in a text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ('["17"]', "17"),
        (' [ "x+1" ] ', "x+1"),
        (r'["\\frac{3}{4}"]', r"\frac{3}{4}"),
        (r'["\frac{3}{4}"]', r"\frac{3}{4}"),
        (r'["\pi"]', r"\pi"),
        (r'["\theta"]', r"\theta"),
    ],
)
def test_a_list_of_one_text_is_read_as_that_text(gold: str, answer: str) -> None:
    assert unwrapped(gold) == (answer, "")
    assert gold_of(gold, ONE_ANSWER) == answer


@pytest.mark.parametrize(
    "gold", ["[1,2]", "[1, 2)", "[5]", "[[1, 2], [3, 4]]", "[-1, \\infty)", "[a, b]", "5", "{1, 2}", "(0, 1]", "['5']"]
)
def test_intervals_and_lists_of_numbers_stay_answers(gold: str) -> None:
    assert gold_of(gold, ONE_ANSWER) == gold


def test_several_answers_are_refused_in_one_sentence() -> None:
    with pytest.raises(BadRow, match=r'^"gt_answer" is a JSON list of 2 answers \(\["3", "4"\]\), and this reward compares with one; keep'):
        gold_of('["3", "4"]', ONE_ANSWER)
    for empty in ("[]", "[null]", '[""]'):
        with pytest.raises(BadRow, match="a list without an answer"):
            gold_of(empty, ONE_ANSWER)


def test_a_list_is_left_to_a_reward_that_does_not_compare_with_one_answer() -> None:
    assert gold_of('["3", "4"]', UNDECLARED) == '["3", "4"]'
    assert gold_of('["3"]', ANY_TEXT) == '["3"]'


def test_a_function_says_what_the_gold_answer_is_to_it(tmp_path: Path) -> None:
    source = "def listed(item):\n    return 1.0\n\nlisted.requires = ('gt_answer',)\nlisted.gold = 'text'\n"
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    spec = Registry.discover([]).spec("reward", f"{tmp_path / 'mine.py'}:listed")
    assert isinstance(spec, RewardSpec)
    assert gold_of("None", spec) == "None"


# --- words for an absent answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gold",
    [
        "notfound",
        "Not found",
        "None",
        "NaN",
        "nan",
        "N/A",
        "See solution",
        "see the solution.",
        "proof",
        "Proof",
        "null",
        r"\text{None}",
        "$NaN$",
    ],
)
def test_a_word_for_an_absent_answer_is_named(gold: str) -> None:
    with pytest.raises(BadRow, match=re.escape(f'"gt_answer" is "{gold}", which stands for an answer that is absent')):
        gold_of(gold, ONE_ANSWER)
    with pytest.raises(BadRow):
        gold_of(gold, UNDECLARED)
    assert gold_of(gold, ANY_TEXT) == gold


def test_a_word_inside_a_list_is_found_too() -> None:
    with pytest.raises(BadRow, match='"gt_answer" is "notfound"'):
        gold_of('["notfound"]', ONE_ANSWER)


@pytest.mark.parametrize(
    ("gold", "question"),
    [
        ("None", "Which of these holds?\nA) all\nB) None"),
        ("None", "Which of these holds? (A) all (B) None"),
        ("None", "Which are prime: 4, 6, None?"),
        ("none", "Name one. If there is no such number, answer none."),
        ("None", "What does this print?\n```python\nprint(f())\ndef f(): return None\n```"),
        ("NaN", 'What is 0/0 in IEEE arithmetic? Write "NaN" or a number.'),
        ("N/A", "Give the price, or N/A."),
        ("None", "Choose one:\n- One\n- None"),
        ("None", "Choose one.\nAll\nNone\n"),
    ],
)
def test_a_word_that_the_question_offers_is_an_answer(gold: str, question: str) -> None:
    assert gold_of(gold, ONE_ANSWER, question=question) == gold


@pytest.mark.parametrize(
    ("gold", "question"),
    [
        ("None", "None of the balls are red. How many are there?"),
        ("None", "If none of the balls is red, how many are blue?"),
        ("proof", "Give a proof that 2 is prime, and write proof."),
        ("notfound", 'Answer "notfound" if there is none.'),
    ],
)
def test_a_word_in_the_prose_of_a_question_offers_nothing(gold: str, question: str) -> None:
    assert why_no_answer(gold, question)


@pytest.mark.parametrize(
    "gold", ["Na", "no solution", "undefined", "proof by induction", "none of these", "0", "DNE", r"\varnothing", "Nana", "N"]
)
def test_honest_answers_that_look_alike_stay(gold: str) -> None:
    assert gold_of(gold, ONE_ANSWER) == gold


# --- columns that say whether a row is valid -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"problem_is_valid": "No"}, '"problem_is_valid" is "No"'),
        ({"solution_is_valid": "Incomplete"}, '"solution_is_valid" is "Incomplete"'),
        ({"solution_is_valid": "Problem not solved"}, '"solution_is_valid" is "Problem not solved"'),
        ({"problem_is_valid": "Yes", "solution_is_valid": False}, '"solution_is_valid" is false'),
        ({"is_valid": 0}, '"is_valid" is 0'),
        ({"answer_is_valid": "false"}, '"answer_is_valid" is "false"'),
    ],
)
def test_a_row_that_says_that_it_is_not_valid_is_bad(columns: dict[str, Any], named: str) -> None:
    with pytest.raises(BadRow, match=re.escape(f"the row says that it is not valid: {named}")):
        gold_of("5", UNDECLARED, **columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"problem_is_valid": "Yes", "solution_is_valid": "yes "},
        {"problem_is_valid": True, "solution_is_valid": None},
        {"is_valid": 1, "answer_is_valid": ""},
        {"is_valid": 0.93},
        {"solution_is_valid": "Not verified"},
        {"is_valid_json": False, "invalid": False, "valid_until": 0, "source_is_validated": "No"},
        {"is_valid": ["No"]},
    ],
)
def test_a_row_that_does_not_say_so_stays(columns: dict[str, Any]) -> None:
    assert why_invalid(columns) == ""
    assert gold_of("5", ONE_ANSWER, **columns) == "5"


def test_a_row_that_is_bad_twice_names_both() -> None:
    with pytest.raises(BadRow, match=r'"gt_answer" is "notfound".*"problem_is_valid" is "No"'):
        gold_of("notfound", ONE_ANSWER, problem_is_valid="No")


# --- what is no answer at all ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gold",
    [
        "[{'instruction_id': ['keywords:existence'], 'kwargs': [{'keywords': ['rain']}]}]",
        '{"func_name": "validate_title", "N": null}',
        '{"inputs": ["1"], "outputs": ["2"]}',
        '[ {"input": "1", "output": "2"} ]',
    ],
)
def test_an_object_in_a_text_is_no_answer(gold: str) -> None:
    with pytest.raises(BadRow, match=r'^"gt_answer" is an object in a text \(.*\), not an answer that this reward can compare with$'):
        gold_of(gold, ONE_ANSWER)
    assert gold_of(gold, UNDECLARED) == gold


@pytest.mark.parametrize("gold", ["\\{a: a > 1\\}", "{x : x > 1}", "{'a', 'b'}", '{"a"}', "[[1, 2]]", "{1: 2}", "f: x"])
def test_a_set_stays_an_answer(gold: str) -> None:
    assert gold_of(gold, ONE_ANSWER) == gold


def test_a_letter_needs_the_choices_in_the_prompt() -> None:
    asked = "Which number is twice four?"
    for choices in ({"options": ["two", "eight"]}, {"choices": {"text": ["two", "eight"], "label": ["A", "B"]}}):
        with pytest.raises(BadRow, match=r"the letter B, and the prompt does not contain the choices, .*type --data-format choices$"):
            gold_of("B", ONE_ANSWER, question=asked, **choices)
        assert gold_of("eight", ONE_ANSWER, question=asked, **choices) == "eight"
        assert gold_of("B", ONE_ANSWER, question=f"{asked} A. two B. eight", **choices) == "B"
        assert gold_of("B", ONE_ANSWER, question=f"{asked} (A) two (B) eight", options=["A. two", "B. eight"]) == "B"
    with pytest.raises(BadRow, match="does not contain the choices"):
        gold_of("B", ONE_ANSWER, question="What is half of 8?", options=["2", "4", "8"])
    assert gold_of("B", ONE_ANSWER, question=asked, options=None) == "B"
    assert gold_of("B", ONE_ANSWER, question=asked, options={"speed": 1}) == "B"


@pytest.mark.parametrize(
    ("gold", "question"),
    [
        ("None", "Find the root. Say None if there is none."),
        ("NaN", "Reply NaN or the number."),
        ("None", "What does `print([].sort())` print?"),
        ("NaN", "What is the value of `Number('abc')`?"),
        ("null", "Which one does `f()` return?"),
        ("proof", 'Which word has five letters: "proof" or "degree"?'),
    ],
)
def test_a_verb_at_the_beginning_and_a_question_about_a_program_offer_a_word(gold: str, question: str) -> None:
    assert why_no_answer(gold, question) == ""


def test_n_a_with_its_full_stops_is_no_answer() -> None:
    assert why_no_answer("n.a.", "What is 2 + 3?")
