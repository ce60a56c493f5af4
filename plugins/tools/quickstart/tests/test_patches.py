"""The format of patches: a patch made from two texts always applies, and gives the second."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rlcore_plugin_quickstart.patches import DIVIDER, END, START, Edit, PatchError, applied, make_patch, parsed

LINE = st.text(alphabet="ab =<>\\$", max_size=4).map(lambda line: line + "\n")
TEXT = st.lists(LINE | st.sampled_from(["a\n", "b\n"]), min_size=1, max_size=8).map("".join)
FILES = {"shop.py": "def gap(a, b):\n    return a + b\n\ndef area(x, y):\n    return x * y\n", "test.py": "assert gap(3, 2) == 1\n"}


def block(search: str, replace: str, path: str = "shop.py") -> str:
    return f"{path}\n{START}{search}{DIVIDER}{replace}{END}"


@settings(deadline=None, max_examples=300)
@given(before=TEXT, after=TEXT, around=st.sampled_from(["{}", "The operator is wrong.\n\n{}\n\nDone.", "```\n{}\n```"]))
def test_a_patch_made_from_two_texts_gives_the_second(before: str, after: str, around: str) -> None:
    assume(before != after)
    patch = around.format(make_patch("shop.py", before, after))
    assert applied({"shop.py": before, "other.py": "x\n"}, patch) == {"shop.py": after, "other.py": "x\n"}


def test_it_contains_only_the_lines_that_change_and_those_that_make_them_unique() -> None:
    assert make_patch("shop.py", "a\nb\nc\n", "a\nx\nc\n") == block("b\n", "x\n")
    assert make_patch("shop.py", "b\nb\nc\n", "b\nx\nc\n") == block("b\nb\nc\n", "b\nx\nc\n")
    assert make_patch("shop.py", "a\nc\n", "a\nb\nc\n") == block("a\nc\n", "a\nb\nc\n")


def test_a_text_with_a_marker_has_no_patch() -> None:
    with pytest.raises(ValueError, match=r"shop\.py: contains a line that is a marker of the patch"):
        make_patch("shop.py", DIVIDER, "a\n")


def test_several_blocks_and_the_fences_of_other_models() -> None:
    first = f"First:\n\nshop.py\n```python\n{START}    return a + b\n{DIVIDER}    return a - b\n{END}\n```\n"
    answer = first + block("def area(x, y):\n", "")
    assert parsed(answer) == [Edit("shop.py", "    return a + b\n", "    return a - b\n"), Edit("shop.py", "def area(x, y):\n", "")]
    assert applied(FILES, answer)["shop.py"] == "def gap(a, b):\n    return a - b\n\n    return x * y\n"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("return a - b", "the answer has no block with SEARCH"),
        (block("    return a + b\n", "    return a - b\n").removesuffix(END), "the answer has no block with SEARCH"),
        (block("return a + b\n", "return a - b\n"), r"occur 0 times in the file, and must occur once"),
        (block("", "x\n"), "occur 0 times"),
        (block("x\n", "y\n", "../../etc/passwd"), "'../../etc/passwd' is not a file of the repository"),
        (block("x\n", "y\n", "/etc/passwd"), "'/etc/passwd' is not a file of the repository"),
        (block("    return a + b\n", "    return a + b\n"), "the patch changes nothing"),
    ],
)
def test_what_does_not_apply_says_why(answer: str, sentence: str) -> None:
    with pytest.raises(PatchError, match=sentence):
        applied(FILES, answer)


def test_lines_that_occur_twice_are_not_replaced() -> None:
    with pytest.raises(PatchError, match="occur 2 times"):
        applied({"shop.py": "a\nb\na\n"}, block("a\n", "c\n"))


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200) | st.lists(st.sampled_from([START, DIVIDER, END, "shop.py\n", "a\n", "\n"]), max_size=12).map("".join))
def test_any_answer_is_a_patch_or_an_error(answer: str) -> None:
    with suppress(PatchError):
        assert set(applied(FILES, answer)) == set(FILES)
