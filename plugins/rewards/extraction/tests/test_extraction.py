"""The span of a text that is judged."""

from __future__ import annotations

import signal
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rlcore_plugin_extraction import Extraction, after_thinking, last_answer, last_boxed


def by(way: str, text: str, **more: object) -> str | None:
    return Extraction.model_validate({"by": way, **more}).find(text).answer


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("5", "5"),
        ("<think>4</think>5", "5"),
        ("4</think>5", "5"),
        ("<think>3</think>4</think>5", "5"),
        ("<think>3</think>4<think>4</think>5", "5"),
        ("<think>5", None),
        ("<think>4</think>5<think>6", None),
        ("<think>5</think>", ""),
    ],
)
def test_what_follows_the_reasoning(text: str, spoken: str | None) -> None:
    assert after_thinking(text) == spoken


def test_reasoning_that_is_required_ignored_or_marked_by_other_words() -> None:
    box = r"<think>\boxed{4}</think> \boxed{5}"
    assert by("boxed", box) == "5"
    assert by("boxed", r"\boxed{5}", think="required") is None
    assert by("boxed", box, think="required") == "5"
    assert by("boxed", r"<think>\boxed{4}</think>", think="ignore") == "4"
    assert by("boxed", r"[T]\boxed{4}[/T]", think_open="[T]", think_close="[/T]") is None
    assert "</think>" in Extraction().find(r"<think>\boxed{4}").reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{1 3 6 8}", "1 3 6 8"),
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{5} and \boxed{6", "5"),
        (r"\boxed{6 \boxed{5}}", r"6 \boxed{5}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{}", ""),
        (r"\boxed {7}", "7"),
        (r"} \boxed{7} }", "7"),
        (r"{ \boxed{7}", "7"),
        ("boxed{7}", None),
        (r"\boxed 7", None),
        (r"\boxed{7", None),
        ("", None),
    ],
)
def test_last_boxed(text: str, expected: str | None) -> None:
    assert last_boxed(text) == expected
    assert by("boxed", text) == expected


@given(st.text(alphabet="\\boxed{} 5", max_size=60))
@settings(max_examples=200, deadline=None)
def test_a_box_is_always_balanced(text: str) -> None:
    found = last_boxed(text)
    if found is not None:
        bare = found.replace("\\\\", "").replace("\\{", "").replace("\\}", "")
        assert bare.count("{") == bare.count("}")


WAYS = [
    ("answer_tags", "<answer>4</answer> <answer> 5 </answer>", "5"),
    ("answer_tags", "<answer>5", None),
    ("hashes", "48 / 2 = 24\n#### 1,072", "1,072"),
    ("hashes", "#### 4\n#### 5\nbye", "5"),
    ("hashes", "##### 5", None),
    ("hashes", "#### 5\n####", None),
    ("answer_line", "Answer: 4\nso Answer: 5 cm", "5 cm"),
    ("answer_line", "**Final Answer:** $5$", "$5$"),
    ("answer_line", "**Answer: 5**", "5"),
    ("answer_line", "Answer:\n\n5", "5"),
    ("answer_line", "the answers are 5", None),
    ("last_number", "I see 12, no 1,234.50 of 3/4.", "3/4"),
    ("last_number", "1,234.50 in all.", "1,234.50"),
    ("last_number", "from -7 to 3-4", "4"),
    ("last_number", "it is -7.", "-7"),
    ("last_number", "1e-5 m", "1e-5"),
    ("last_number", "50%", "50%"),
    ("last_number", "H2O", None),
    ("last_number", "five", None),
    ("letter", "The answer is B", "B"),
    ("letter", "The correct answer is (b).", "B"),
    ("letter", "**Answer:** C) Paris", "C"),
    ("letter", r"so \boxed{\text{D}}", "D"),
    ("letter", r"so \textbf{(E)}\ 7", "E"),
    ("letter", "B", "B"),
    ("letter", "so\n**B**", "B"),
    ("letter", "I think (C) fits", "C"),
    ("letter", "Answer: B because A is wrong", "B"),
    ("letter", "Answer: A or B", None),
    ("letter", "Answer: (A) (B) (C) (D)", None),
    ("letter", "A) yes B) no", None),
    ("letter", "it may be (A), it may be (B)", None),
    ("letter", "The answer is a prime", None),
    ("letter", "A car is fast", None),
    ("json", '```json\n{"answer": 0.10}\n```', "0.10"),
    ("json", '{"answer": "4"} no, {"answer": "5"}', "5"),
    ("json", '{"answer": [1, {"a": 2.50}]} {"other": 1}', '[1, {"a": 2.50}]'),
    ("json", '{"answer": null} {"answer": ', None),
    ("text", " 5 \n", "5"),
]


@pytest.mark.parametrize(("way", "text", "expected"), WAYS)
def test_ways_of_marking_an_answer(way: str, text: str, expected: str | None) -> None:
    found = Extraction.model_validate({"by": way}).find(text)
    assert found.answer == expected
    assert bool(found.reason) is (expected is None)


def test_a_field_inside_objects_and_other_letters() -> None:
    assert by("json", '{"a": {"b": 5}}', field="a.b") == "5"
    assert by("json", '{"a": 5}', field="a.b") is None
    assert by("letter", "The answer is Y", letters="XYZ") == "Y"


def test_the_first_way_that_finds_one_counts() -> None:
    both = Extraction(by=("hashes", "last_number"))
    assert both.find("#### 4\n5").answer == "4"
    assert both.find("4 or 5").answer == "5"
    assert both.find("none").reason == "no #### followed by an answer; no number"


def test_a_pattern_of_the_users() -> None:
    assert by("pattern", "x=1, x=22", pattern=r"x=(\d+)") == "22"
    assert by("pattern", "x=1, x=22", pattern=r"x=\d+") == "x=22"
    assert by("pattern", "x=1;y=2", pattern=r"(x)=(?P<answer>\d+)") == "1"
    assert by("pattern", "none", pattern=r"x=(\d+)") is None


@pytest.mark.parametrize(("pattern", "text"), [(r"(a+)+b", "a" * 5000), (r"\s*\s*\s*x", " " * 500_000), (r"(a|a)*b", "a" * 60)])
def test_a_pattern_that_backtracks_has_a_time_limit(pattern: str, text: str) -> None:
    found = Extraction(by=("pattern",), pattern=pattern, pattern_seconds=0.05).find(text)
    assert (found.answer, found.reason) == (None, "limit: the pattern took more than 0.05 s on this text")


def test_the_alarm_of_the_caller_is_kept() -> None:
    rung: list[int] = []
    former = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    before = signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        by("pattern", "x=1", pattern=r"x=(\d+)")
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 900.0 < left <= 1000.0
        signal.raise_signal(signal.SIGALRM)
        assert rung
    finally:
        signal.signal(signal.SIGALRM, former)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_a_pattern_works_in_any_thread() -> None:
    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.append(by("pattern", "x=1", pattern=r"x=(\d+)")))
    thread.start()
    thread.join()
    assert found == ["1"]


UNITS = ["\\boxed{", "{", "}", "\\", "\\boxed", " ", "\\boxed{}", "1", "1,111", "1.", "-", "####", "answer:", "answer:\n", "(A)", "a) "]
UNITS += ["A, ", "*", '{"a":', '{"a":[', '{"answer":', '{"answer":1}', "<answer>", "</answer>", "\\text{", "<think>", "</think>"]


@pytest.mark.timeout(75)
@pytest.mark.parametrize("unit", UNITS)
def test_extraction_is_linear(unit: str) -> None:
    """Quadratic work on these would take minutes, and run into the test's timeout."""
    last_answer(unit * 50_000)
    for way in ("boxed", "answer_tags", "hashes", "answer_line", "last_number", "letter", "json", "text"):
        by(way, unit * 50_000)
        by(way, "answer: " + unit * 50_000, think="ignore")


def test_an_answer_that_is_nested_too_deeply_is_none() -> None:
    """The bound is the same in every version of Python, and however deep the caller is."""
    for depth, kept in ((200, True), (201, False), (900, False), (40_000, False)):
        nested = "[" * depth + "1" + "]" * depth
        assert by("json", f'{{"answer":{nested}}}') == (nested if kept else None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"by": ()}, "at least 1 item"),
        ({"by": "box"}, "'boxed'"),
        ({"by": ("boxed", "boxed")}, "names a way twice"),
        ({"by": "pattern"}, "belong together"),
        ({"pattern": "x"}, "belong together"),
        ({"by": "pattern", "pattern": "("}, "is not a regular expression"),
        ({"by": "pattern", "pattern": "(?P<x>.)"}, "called `answer`"),
        ({"by": "letter", "letters": "abc"}, "capital letters"),
        ({"colour": 1}, "Extra inputs"),
    ],
)
def test_options_that_break_a_rule(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Extraction.model_validate(options)


def test_a_pattern_sees_the_end_of_a_long_text_only() -> None:
    """Its loops over one class of characters look for no signal: on the whole text this would run into the test's timeout."""
    by("pattern", " " * 1_000_000, pattern=r"\s*x", pattern_seconds=10.0)
    assert by("pattern", "x=1" + " " * 20_000, pattern=r"x=(\d)") is None
