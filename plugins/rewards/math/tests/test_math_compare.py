"""When an answer is the gold answer. The order of comparisons above all."""

import itertools
import random
import subprocess
import sys

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_math import numeric, symbolic
from rlcore_plugin_math.compare import Equality, LimitExceeded, compare, gold_problem
from rlcore_plugin_math.options import BoxedOptions
from rlcore_plugin_math.rewards import BoxedReward

from rlcore.api import RewardInput


def equal(gold, answer):
    try:
        return compare(gold, answer, seconds=5.0) in (Equality.EQUAL, Equality.AS_TEXT)
    except LimitExceeded:
        return False


@pytest.fixture
def no_algebra(monkeypatch):
    symbolic._expected.cache_clear()

    def refuse(text):
        raise AssertionError(f"math-verify was asked about {text!r}")

    monkeypatch.setattr(symbolic, "_parse", refuse)


def test_no_permutation_of_a_sorted_gold_is_right(no_algebra):
    """200 golds of the sort task; every other order of their digits is wrong, and algebra is never asked."""
    source = random.Random(0)
    for _ in range(200):
        digits = sorted(source.choices("0123456789", k=source.randint(4, 6)))
        gold = " ".join(digits)
        assert equal(gold, gold)
        for other in set(itertools.permutations(digits)) - {tuple(digits)}:
            assert not equal(gold, " ".join(other))


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=6),
    st.randoms(use_true_random=False),
    st.sampled_from([" ", "  ", "\n", "\t", "\\ ", "~", "\\quad ", " \\, ", "\u00a0", "\u2009 "]),
)
@settings(max_examples=150, deadline=None)
def test_numbers_side_by_side_are_never_added_up(digits, source, gap):
    total = str(sum(digits))
    assert not equal(total, gap.join(map(str, digits)))
    other = digits[:]
    source.shuffle(other)
    assert equal(" ".join(map(str, digits)), gap.join(map(str, other))) is (digits == other)


@pytest.mark.parametrize(
    "shape", ["{3}{1}{6}{8}", "$3$ $1$ $6$ $8$", "(3 1 6 8)", r"3\text{ }1\text{ }6 8", "x=3 1 6 8", "3 1 6 8 cm", "+3 +1 +6 +8"]
)
def test_disguised_sequences_are_not_added_up(shape):
    assert not equal("18", shape)


@given(st.integers(1, 10**12))
@settings(max_examples=60, deadline=None)
def test_every_spelling_of_thousands(number):
    for spelled in (
        f"{number:,}",
        f"{number:,}".replace(",", " "),
        f"{number:,}".replace(",", r"\,"),
        f"{number:,}".replace(",", "{,}"),
        f"{number}.0",
    ):
        assert equal(str(number), spelled)
    assert not equal(str(number), f"{number + 1:,}")


@given(st.integers(-999, 999), st.integers(1, 99))
@settings(max_examples=60, deadline=None)
def test_every_spelling_of_a_fraction(over, under):
    gold = rf"\frac{{{over}}}{{{under}}}"
    for spelled in (f"{over}/{under}", rf"\dfrac{{{2 * over}}}{{{2 * under}}}", rf"$\tfrac{{{over}}}{{{under}}}$"):
        assert equal(gold, spelled)
    assert not equal(gold, f"{over + 1}/{under}")


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_the_same_text_is_right_and_nothing_equals_nothing(text):
    assert equal(text, f"  {text}\n")
    assert not equal(text, " ")
    assert not equal("", "")


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("3 1/2", "7/2", True),
        ("2½", r"\frac{5}{2}", True),
        ("x≥0", r"[0,\infty)", True),
        (r"(-\infty,-1)\cup(1,\infty)", r"x<-1 \text{ or } x>1", True),
        ("8", "3+5=8", True),
        ("7", "3+5=7", False),
        ("listen", "silent", False),
        ("xy", "yx", True),
        ("1e-9", "2e-9", False),
        ("10^{-9}", "0", False),
        (r"\pi", "3.14159", False),
        ("5 km", "5 miles", False),
        (r"2\sqrt{3}\text{ cm}", r"2\sqrt{3}", True),
        ("25", r"25\%", True),
        ("25", "0.25", False),
        ("2x+3y=6", "2x+3y-6=0", True),
        ("2x+3y=6", "0=0", False),
        ("77_8", "77", False),
        ("9:05", "9.05", False),
        ("5", r"5 \text{ or } 6", False),
        ("5", "5 not 6", False),
        ("(2,-3)", "x=2, y=-3", True),
        ("(2,-3)", "x=-3, y=2", False),
        (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt 3}", True),
        ("10^{100}", "10^{100}+1", False),
        (r"\text{Monday}", "monday", True),
        (r"\mathbb{R}", r"(-\infty, +\infty)", True),
        (r"(-\infty,\infty)", "ℝ", True),
        (r"\mathbb{R}", r"\mathbb{R}+", False),
        (r"\mathbb{R}+", r"\mathbb{R}", False),
        (r"\mathbb{R}", r"+\mathbb{R}", False),
        (r"\mathbb{R}", r"\mathbb{R}^+", False),
        (r"\mathbb{R}^+", r"\mathbb{R}", False),
        (r"\mathbb{R}", r"\mathbb{R}_+", False),
        (r"\mathbb{R}_+", r"\mathbb{R}", False),
        (r"\mathbb{R}", r"(-\infty,\infty)+", False),
        (r"\mathbb{R}", r"(0, +\infty)", False),
        (r"(0,\infty)", r"(0, +\infty)", True),
        ("3", "+3", True),
    ],
)
def test_kinds(gold, answer, expected):
    assert equal(gold, answer) is expected


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("42", "41"), ("1/2", "0.5"), ("Evelyn", "Briana"), ("1 3 6 8", "1"), ("5 cm", "5 m"), ("12:30", "1230"), ("(1,2)", "(2,1)")],
)
def test_plain_answers_never_reach_algebra(no_algebra, gold, answer):
    equal(gold, answer)


def test_judging_plain_answers_does_not_import_math_verify():
    program = (
        "import sys; from rlcore.api import RewardInput; from rlcore_plugin_math.rewards import BoxedReward; "
        "s = BoxedReward().score(RewardInput(messages=(), columns={'gt_answer': '1 3 6 8'}, text=r'\\boxed{1 3 8 6}')); "
        "assert s.outcome == 'wrong', s; assert not {'math_verify', 'sympy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_gold_answer_is_parsed_once(monkeypatch):
    asked = []
    parse = symbolic._parse
    monkeypatch.setattr(symbolic, "_parse", lambda text: asked.append(text) or parse(text))
    for number in range(5):
        assert not equal("x^7+3", f"x^7+{number}*3+4")
    assert asked.count("x^7+3") == 1


_SHAPES = ["{}", "0.{}", r"{}\%", r"\frac{{{}}}{{7919}}", r"\sqrt{{{}}}", "x+{}", "({},1)", "x={}", "{} cm", "x<{}", r"{}\pi"]


@given(st.integers(1, 10**8), st.data())
@settings(max_examples=80, deadline=None)
def test_no_number_equals_one_with_another_digit(number, data):
    digits = str(number)
    place = data.draw(st.integers(0, len(digits) - 1))
    digit = data.draw(st.sampled_from([other for other in "0123456789" if other != digits[place]]))
    other = digits[:place] + digit + digits[place + 1 :]
    shape = data.draw(st.sampled_from(_SHAPES))
    assert equal(shape.format(number), shape.format(number))
    assert not equal(shape.format(number), shape.format(other))


_PIECES_TEXT = (
    r"\frac{ \sqrt{ \sum_{i=1}^{ \int_0^{ \lim_{x\to \log_ \binom{ \begin{pmatrix} \end{pmatrix} \text{ { } [ ] ( ) "
    r"^ _ + - * / = < \le \ne \in \cup \infty \pi x y i e 1 2 0 10 3.5 , ; & \\ ! | % \% ' \sin \ln \lfloor \rfloor "
    r"\emptyset \mathbb{R} \overline{ \cdot \pm \bmod \gcd( \max( \vec{ \Gamma( \langle \{ \} f(x) dx ~ nan oo E I S "
    r"lambda \prime ^\circ ² ½ ≤ "
)
_PIECES = st.sampled_from(_PIECES_TEXT.split())


# On a busy machine the limit's signal may arrive in what hypothesis does at a garbage collection, which loses it; the next one follows.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@given(
    st.lists(_PIECES, min_size=1, max_size=9).map("".join),
    st.sampled_from(["3", "x+1", "(1,2)", "x<3", r"\vec{v}", "x^2+y^2=1"]),
)
@settings(max_examples=150, deadline=None)
def test_whatever_the_text_there_is_a_verdict(text, gold):
    """No library's exception gets out: what the text does to it is the text's fault."""
    score = BoxedReward(BoxedOptions(time_limit=1.0)).score(
        RewardInput(messages=(), columns={"gt_answer": gold}, text=rf"\boxed{{{text}}}")
    )
    assert score.outcome.judged


@pytest.mark.parametrize(
    "bomb",
    [
        "9^{9^{9}}",
        "9^9^9^9",
        "((10!)!)!",
        "100000000!",
        r"\binom{1000000}{500000}",
        "1e999999999",
        "(9^9)^(9^9)",
        r"\sum_{i=1}^{100000} \frac{1}{i}",
    ],
)
def test_bombs_are_refused_unseen(no_algebra, bomb):
    with pytest.raises(LimitExceeded):
        compare("42", bomb, seconds=5.0)


@pytest.mark.parametrize(
    ("gold", "problem"),
    [("", "empty"), ("  ", "empty"), (r"\frac{1}{", "not a formula"), ("9^{9^{9^9}}", "beyond"), ("@?", "not a formula")],
)
def test_unusable_golds_are_named(gold, problem):
    assert problem in gold_problem(gold, text_allowed=False, seconds=2.0)


@pytest.mark.parametrize(
    "gold", ["42", "1 3 6 8", "x^2+1", "Evelyn", r"\text{no}", "(1,2)", "y=2x+1", r"\begin{pmatrix}1\\2\end{pmatrix}", "12:30", "1011_2"]
)
def test_usable_golds_pass(gold):
    assert gold_problem(gold, text_allowed=False, seconds=5.0) is None


NUMERIC_GOLDS = ["3", "4", "1/2", "-7", r"\sqrt{2}", r"50\%", "0", "34"]


@pytest.mark.parametrize("answer", [r"\pi^{999}", "e^{900}", r"\sqrt{2}^{999}\cdot 10^{300}", "e^{-900}", r"\frac{0}{0}", r"\infty-\infty"])
def test_nothing_beyond_a_float_equals_a_number(answer):
    assert [gold for gold in NUMERIC_GOLDS if equal(gold, answer)] == []


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("e^{900}", r"e^{450}\cdot e^{450}", True),
        ("e^{900}", r"\pi^{999}", False),
        ("e^{900}", "e^{900}+1", False),
        (r"\pi^{-999}", "e^{-900}", False),
        (r"\sqrt{2}\cdot 10^{20}", r"10^{20}\sqrt2", True),
    ],
)
def test_huge_and_tiny_constants(gold, answer, expected):
    assert equal(gold, answer) is expected


@pytest.mark.parametrize(
    "answer",
    [
        r"7 \boxed{5}",
        r"7 + \boxed{5}",
        r"x \boxed{5}",
        r"7 \fbox{5}",
        r"7 \] \[ 5",
        r"7\) \(5",
        "7 @@ 5",
        "7 # 5",
        "7 ` 5",
        "7 $ 5",
        r"7 \\ 5",
        r"7 & 5",
        r"7 \to 5",
        r"7 \mid 5",
        "7 ... 5",
        r"7 \cap 5",
        r"7 \setminus 5",
        "7 = = 5",
        r"7 \perp 5",
        r"7 \circ 5",
        r"\max 5",
        r"5\cdot @",
        r"5\cdot",
        "5 +",
        "5\x006",
        "5\x00",
        "5\ud800",
        r"5\text{@@}",
        r"7 \langle 5",
        "7 | 5",
        "7^ ! 5",
        "7 ? 5",
        "7 : 5",
    ],
)
def test_what_cannot_be_parsed_whole_is_not_cut_to_its_last_piece(answer):
    assert not equal("5", answer)


@pytest.mark.parametrize(
    "answer",
    [
        r"\neq 3",
        r"\not= 3",
        r"\not 3",
        r"\leq 3",
        "> 3",
        r"\geq 3",
        r"\sim 3",
        r"(\neq 3)",
        "{>3}",
        r"\neg=3",
        "3 >",
        r"x \notin 3",
        "(7=3)",
        "{7=3}",
    ],
)
def test_a_relation_is_not_its_right_hand_side(answer):
    assert not equal("3", answer)


def test_the_same_relation_is_equal():
    assert equal(r"\leq 3", r"\le 3.0")
    assert not equal(r"\leq 3", r"\geq 3")
    assert equal("3", "= 3")
    assert equal("3", r"x=\boxed{3}")


@pytest.mark.parametrize(
    "words",
    [
        r"\text{ is wrong}",
        "no four",
        "plus four",
        "times ten",
        "minus one",
        "million",
        "thousand",
        r"\text{ hundred}",
        "dozen",
        "mln",
        r"\text{ halves}",
        r"\text{ squared}",
        "factorial",
        r"\text{ of those many apples}",
        r"\text{-four}",
    ],
)
def test_words_that_change_a_number_are_no_unit(words):
    assert not equal("3", f"3 {words}")


@pytest.mark.parametrize("unit", ["apples", "square units", "feet per second", "miles per hour", r"\text{cm}^2", r"\text{ ways}"])
def test_nouns_are_units(unit):
    assert equal("3", f"3 {unit}")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\frac{\sqrt{3}}{2}", r"\frac{\sqrt3}2"),
        (r"\frac{2}{\sqrt{3}}", r"\frac2{\sqrt3}"),
        (r"\emptyset", r"\varnothing"),
        (r"\emptyset", r"\{\}"),
        ("1/3", r"0.\overline{3}"),
        ("7/12", r"0.58\overline{3}"),
        ("5", r"12 \bmod 7"),
    ],
)
def test_right_in_another_spelling(gold, answer):
    assert equal(gold, answer)
    assert equal(answer, gold)


@given(st.integers(15, 999), st.sampled_from(["x", r"\pi", r"\sqrt{2}", "x^2", r"\sin x", "y=x", r"x+y<\pi"]), st.sampled_from("+-"))
@settings(max_examples=40, deadline=None)
def test_no_offset_is_too_small_to_count(places, gold, sign):
    assert not equal(gold, rf"{gold}{sign}10^{{-{places}}}")


@given(st.integers(-50, 50), st.integers(1, 50), st.sampled_from(["<", r"\le "]), st.sampled_from(["<", r"\le "]))
@settings(max_examples=40, deadline=None)
def test_and_is_a_range_or_a_union(low, width, first, second):
    """Joined by the other word, inequalities mean something else, in whichever order they stand."""
    high = low + width
    left, right = "(" if first == "<" else "[", ")" if second == "<" else "]"
    inside = [f"{low}{first}x", f"x{second}{high}"]
    outside = [f"x{second}{low}", f"{high}{first}x"]
    union = rf"(-\infty,{low}{right}\cup{left}{high},\infty)"
    for order in (1, -1):
        assert equal(f"{left}{low},{high}{right}", r"\text{ and }".join(inside[::order]))
        assert equal(union, r"\text{ or }".join(outside[::order]))
        assert not equal(union, r"\text{ and }".join(outside[::order]))
        assert not equal(f"{left}{low},{high}{right}", r"\text{ or }".join(inside[::order]))


@given(st.integers(1, 300), st.sampled_from([(r"\pi", "pi"), (r"\ln 2", "ln2"), (r"\sqrt{2}", "sqrt2"), ("e", "e")]))
@settings(max_examples=30, deadline=None)
def test_no_run_of_digits_is_an_irrational_number(places, constant):
    gold, name = constant
    with mpmath.workdps(places + 20):
        digits = mpmath.nstr({"pi": +mpmath.pi, "ln2": mpmath.ln(2), "sqrt2": mpmath.sqrt(2), "e": +mpmath.e}[name], places + 2)
    assert not equal(gold, digits)
    assert not equal(digits, gold)


@pytest.mark.parametrize("accident", [AttributeError("x"), TypeError("x"), KeyError("x"), RecursionError("x"), AssertionError("x")])
def test_an_accident_is_raised_and_not_taken_for_another_comparison(accident, monkeypatch):
    def broken(*sides):
        raise accident

    monkeypatch.setattr(numeric, "_same", broken)
    with pytest.raises(type(accident)):
        compare(r"\frac{x}{2}", r"0.5 x", seconds=10.0)


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("a", r"\cot(0)", Equality.DIFFERENT),  # a division by zero
        (r"\sqrt{x}", r"\sum_{n=1}^{\infty} (-1)^n", Equality.DIFFERENT),  # a sum that diverges
        (r"\max(i,1)", r"x!", Equality.DIFFERENT),  # numbers without an order
        (r"\begin{pmatrix}1&2\\2&4\end{pmatrix}^{-1}", r"\sqrt{\pi}", Equality.DIFFERENT),  # no inverse
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{-1}", r"\sqrt{\pi}", Equality.DIFFERENT),  # a matrix and a number
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{-1}", r"\left(\begin{pmatrix}1&2\\3&4\end{pmatrix}\right)^{-1}", Equality.EQUAL),
    ],
)
def test_a_formula_without_a_value_is_compared_in_another_way(gold, answer, expected):
    assert compare(gold, answer, seconds=10.0) is expected


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("8", r"\sum_{j=1}^{1/2} j"),
        ("3x", r"\sum_{k=1}^{1/3} kx"),
        ("(1,2)", r"(1,\sum_{k=1}^{1/2} k)"),
        ("4", r"\exp(\begin{pmatrix}2&0\\0&1\end{pmatrix}^{3})"),
        (r"\cos x", r"\tanh(\Gamma(0))"),
        ("y=2x", r"\sqrt[\sqrt[0.0]{e}]{\frac12^{x+i}}"),
        ("x<4", r"x<\sum_{k=1}^{1/2} k"),
    ],
)
def test_an_answer_that_algebra_cannot_bear_is_wrong(gold, answer):
    assert compare(gold, answer, seconds=5.0) is Equality.DIFFERENT


def test_a_gold_answer_that_algebra_cannot_bear_is_an_error_of_the_row():
    with pytest.raises(RecursionError):
        compare(r"\sum_{k=1}^{1/2} k", "8", seconds=5.0)


def test_a_number_that_algebra_cannot_bear_is_near_to_nothing():
    assert symbolic.value(r"\sum_{k=1}^{1/2} k") is None
