"""Answers in words: labels, units, nouns, other spellings."""

import pytest
from rlcore_plugin_math.compare import Equality, LimitExceeded, compare


def equal(gold, answer):
    try:
        return compare(gold, answer, seconds=5.0) in (Equality.EQUAL, Equality.AS_TEXT)
    except LimitExceeded:
        return False


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("(5,7)", "b=5, a=7", False),
        ("(7,5)", "b=5, a=7", True),
        ("(1,2,3)", "x=1, z=2, y=3", False),
        ("5,7", "x_2=5, x_1=7", False),
        ("b=5, a=7", "(5,7)", False),
        ("b=5, a=7", "(7,5)", True),
        ("b=5, a=7", "5,7", True),
        ("b=5, a=7", "7,5", False),
        (r"(1,2)", r"\beta=1, \alpha=2", False),
        ("(5,7)", "a=5, b=7", True),
        ("p=4,5;q=6", "p=4;q=5,6", False),
        ("p=4,5;q=6", "q=6; p=5,4", True),
        ("p=4,5,6;q=7", "p=4;q=5,6,7", False),
    ],
)
def test_values_belong_to_their_names(gold, answer, expected):
    assert equal(gold, answer) is expected


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("7 ft", '7"', False),
        ("7 in", '7"', True),
        ('7"', "7 inches", True),
        ("7", '7"', True),
        ("7 m", '7"', False),
        ("3 mg", "3 Mg", False),
        ("3 Mg", "3 mg", False),
        (r"3\text{ mW}", r"3\text{ MW}", False),
        ("3 ms", "3 Ms", False),
        ("3 mHz", "3 MHz", False),
        (r"3\text{ mm}", r"3\text{ Mm}", False),
        ("3 MHz", "3 Mhz", True),
        ("3 kg", "3 KG", True),
        ("3 min", "3 Min", True),
        ("3 mi", "3 Miles", True),
    ],
)
def test_a_sign_or_prefix_of_another_unit_is_not_the_unit(gold, answer, expected):
    assert equal(gold, answer) is expected


NUMBERS = (
    "sextillion jillions trillionth thirteenths ninetieth lacs crore googolplexes myriads quadruples quintuple milli pico hecto twenties"
)
DENIALS = "untrue bogus mistaken refuted nope oops incorrectly lies nicht falsch nah disproved retracted supposedly unlikely guess"
CHANGED = "negated inverted conjugated octal binary factorials reversed increased recurring repeating periodic minimum"


@pytest.mark.parametrize("noun", [*NUMBERS.split(), *DENIALS.split(), *CHANGED.split(), "oder acht", "lower bound", "ou/six", "y seis"])
@pytest.mark.parametrize("shape", ["9 N", r"9\text{ N}"])
def test_a_word_that_is_a_number_or_takes_one_back_is_no_noun(noun, shape):
    assert not equal("9", shape.replace("N", noun))
    assert not equal("9", shape.replace("N", noun.upper()))


@pytest.mark.parametrize(
    "noun", ["apples", "squares", "errors", "roots", "families", "hours", "balls/box", "kilos", "micrometers", "tuples"]
)
def test_a_noun_may_be_left_out(noun):
    assert equal("9", f"9 {noun}")


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (r"\cosh(90)", r"\frac{e^{90}+e^{-90}}{2}", True),
        (r"\cosh(90)", r"\frac{e^{90}}{2}", False),
        (r"e^{200}", r"e^{200}+10^{-50}", False),
        (r"\pm i", "-i, i", True),
        (r"\pm i", "i, i", False),
        ("|x-2|<5", "-3<x<7", True),
        (r"|x+2|\le 5", "[-7,3]", True),
        ("|x-2-1|<5", "(-2,8)", True),
        ("|x-2|<5", "-3<x<8", False),
        (r"|x-2|\le 5", "-3<x<7", False),
        ("x>4", r"\{x:x>4\}", True),
        (r"1<t\le 4", r"\{t\in\mathbb{R}\mid 1<t\le 4\}", True),
        ("x>4", r"\{x:x<4\}", False),
        ("6", r"\text{6 pears}", True),
        ("6", r"\text{6 millions}", False),
        ("6", r"\text{6 or seven}", False),
    ],
)
def test_right_answers_in_other_words(gold, answer, expected):
    assert equal(gold, answer) is expected
