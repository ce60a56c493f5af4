"""The span that is judged, and the format rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_math.extract import last_answer, last_boxed, tags_in_order


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
def test_last_boxed(text, expected):
    assert last_boxed(text) == expected


@given(st.text(alphabet="\\boxed{} 5", max_size=60))
@settings(max_examples=200, deadline=None)
def test_a_box_is_always_balanced(text):
    found = last_boxed(text)
    if found is not None:
        bare = found.replace("\\\\", "").replace("\\{", "").replace("\\}", "")
        assert bare.count("{") == bare.count("}")


@pytest.mark.parametrize("unit", ["\\boxed{", "{", "}", "\\", "\\boxed", " ", "\\boxed{}", "\\boxed "])
def test_extraction_is_linear(unit):
    """Quadratic work on these would take minutes and run into the test's timeout."""
    last_boxed(unit * 200_000)
    last_answer(unit * 200_000)


@pytest.mark.parametrize(
    ("text", "valid", "answer"),
    [
        ("<think>a</think><answer>5</answer>", True, "5"),
        ("well <think>a</think> so <answer> 5 </answer> \n", True, " 5 "),
        ("<think>a</think><answer>5</answer>.", False, "5"),
        ("<think>a</think><answer>4</answer><answer>5</answer>", False, "5"),
        ("<answer>5</answer><think>a</think>", False, "5"),
        ("<think>a<answer>5</answer></think>", False, "5"),
        ("<answer>5</answer>", False, "5"),
        ("<think>a</think><answer>5", False, None),
        ("", False, None),
    ],
)
def test_tags(text, valid, answer):
    assert tags_in_order(text) is valid
    assert last_answer(text) == answer
