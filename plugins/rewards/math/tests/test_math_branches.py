"""Formulas that are equal on one branch only are different; those that are equal wherever both are real are equal."""

import pytest
from rlcore_plugin_math import numeric
from rlcore_plugin_math.compare import Equality, compare
from rlcore_plugin_math.floats import FormulaPair
from sympy import I, Rational, Symbol, atan, sin, tan, zeta

UNKNOWNS = ["x", "x/10", "x/1000", "x-50", "x+300", "xy"]
ONE_BRANCH = [
    r"\arctan(\tan(U))",
    r"\arcsin(\sin(U))",
    r"\arccos(\cos(U))",
    r"\sqrt{(U)^2}",
    r"\sqrt[4]{(U)^4}",
    r"-|U|",
    r"\max(U,0)",
    r"\lfloor U\rfloor",
    r"2\arctan(\tan(\frac{U}{2}))",
]
FRAMES = ["T", "y^2=T+1", "w<T+1", "(T,1)", r"[T,\infty)", r"\frac{1}{T+7}", "T+i", r"e^{(T)/1000}"]


def equal(gold, answer):
    return compare(gold, answer, seconds=10.0) is Equality.EQUAL


@pytest.mark.parametrize("unknown", UNKNOWNS)
@pytest.mark.parametrize("shape", ONE_BRANCH)
def test_what_is_equal_on_one_branch_is_different(shape, unknown):
    answer = shape.replace("U", unknown)
    assert not equal(unknown, answer)
    assert not equal(answer, unknown)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    "shape", [r"\arctan(\tan(z))", r"\arcsin(\sin(\frac{z}{9}))\cdot 9", "|z-1000|-1000+2z", r"\sqrt{(z+1000)^2}-1000"]
)
def test_whatever_stands_around_it(shape, frame):
    """``-1000+2z`` makes z of ``|z-1000|`` above 1000, and 1000 of it below."""
    assert not equal(frame.replace("T", "z"), frame.replace("T", shape))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1000-x", "|x-1000|"),
        ("10^5-x", "|x-10^5|"),
        ("100", r"\max(x,100)"),
        ("0", r"\max(0,1-|x-50|)"),
        ("x", r"\min(x,50)"),
        (r"\cos(x/50)", r"\sqrt{\cos^2(x/50)}"),
        (r"\lfloor x\rfloor+1", r"\lceil x\rceil"),
        ("1", r"\lceil x\rceil-\lfloor x\rfloor"),
        ("x", r"x+\sin(101\pi x)"),
        ("0", r"\sin(101\pi x)"),
        (r"\arctan x+\arctan y", r"\arctan\frac{x+y}{1-xy}"),
        (r"2\arcsin x", r"\arcsin(2x\sqrt{1-x^2})"),
        (r"3\arcsin x", r"\arcsin(3x-4x^3)"),
        (r"\arccos(\sin x)", r"\frac{\pi}{2}-x"),
        (r"\arctan x", r"\frac{\pi}{2}-\arctan\frac{1}{x}"),
        ("|x|", r"\sqrt[3]{x^3}"),
        (r"\sqrt[6]{x^2}", r"\sqrt[3]{x}"),
        (r"2\ln(-x)+1", r"\ln x+\ln x+1"),
        (r"\ln(x^2)", r"2\ln(-x)"),
        ("2x", r"\sin(\arcsin x)+\arcsin(\sin x)"),
        ("x", r"\arctan(\tan x)+\sqrt{x+1}\sqrt{1-x}-\sqrt{1-x^2}"),
        (r"\sqrt{1-x^2}", r"\sqrt{x^2-1}"),
        (r"y=\sqrt[3]{x^3}+|y|+1", "y=|x|+|y|+1"),
        ("1", r"\gcd(n,2)"),
        ("2n", r"\text{lcm}(n,2)"),
        ("2n", r"\lcm(n,2)"),
        (r"\gcd(m,n)", "1"),
        (r"\gcd(m,n)", r"\gcd(m,k)"),
    ],
)
def test_relatives_of_one_branch(gold, answer):
    assert not equal(gold, answer)


RESTRICTED = [
    (r"2\ln x", r"\ln(x^2)"),
    (r"\ln(x-5)+\ln(x+5)", r"\ln(x^2-25)"),
    (r"\ln(x-50)-\ln 2", r"\ln\frac{x-50}{2}"),
    (r"\ln(x-1)+\ln(1.2-x)", r"\ln((x-1)(1.2-x))"),
    (r"\sqrt{xy}", r"\sqrt{x}\sqrt{y}"),
    (r"\sqrt{x^2-1}", r"\sqrt{x-1}\sqrt{x+1}"),
    (r"\sqrt{x(1-x)}", r"\sqrt{x}\sqrt{1-x}"),
    (r"\sqrt{(x-1)(2-x)}", r"\sqrt{x-1}\sqrt{2-x}"),
    (r"\sqrt{0.01-x^2}", r"\sqrt{0.1-x}\sqrt{0.1+x}"),
    (r"\sqrt{(x-100)(101-x)}", r"\sqrt{x-100}\sqrt{101-x}"),
    (r"\arcsin x+\arccos x", r"\frac{\pi}{2}"),
    (r"\arcsin(2x-1)", r"2\arcsin\sqrt{x}-\frac{\pi}{2}"),
    (r"\arcsin\sqrt{x}", r"\arccos\sqrt{1-x}"),
    (r"\arcsin(10x)", r"\frac{\pi}{2}-\arccos(10x)"),
    (r"\arcsin(x-20)", r"-\arcsin(20-x)"),
    (r"\arctan(\tan x)", r"\arctan(\tan(x+\pi))"),
    (r"\arcsin(\sin x)", r"\frac{\pi}{2}-\arccos(\sin x)"),
    (r"\sqrt{x^2}", "|x|"),
    ("x", r"\sqrt[3]{x^3}"),
    (r"\sqrt[3]{x}\sqrt[3]{y}", r"\sqrt[3]{xy}"),
    ("(a^2)^n", "a^{2n}"),
    ("(ab)^n", "a^n b^n"),
    (r"\frac{1-\cos(\pi n)}{n}", r"\frac{1-(-1)^n}{n}"),
    (r"\frac{x+y+|x-y|}{2}", r"\max(x,y)"),
    (r"-\lfloor -x\rfloor", r"\lceil x\rceil"),
    (r"\cosh^2 x-\sinh^2 x", "1"),
    (r"(x+1)^9-(x-1)^9", r"18x^8+168x^6+252x^4+72x^2+2"),
    (r"\sqrt{x+1}-\sqrt{x}", r"\frac{1}{\sqrt{x+1}+\sqrt{x}}"),
    (r"\frac{d}{dx} x", "1"),
    (r"e^{ix}", r"\cos x+i\sin x"),
    (r"x^{5/2}", r"x^2\sqrt{x}"),
    (r"2\gcd(m,n)+1", r"1+2\gcd(n,m)"),
    (r"\gcd(12,18)x", "6x"),
]


@pytest.mark.parametrize(("gold", "answer"), RESTRICTED)
def test_what_is_equal_where_both_are_real_is_equal(gold, answer):
    assert equal(gold, answer)
    assert equal(answer, gold)


def test_many_points_are_asked_only_where_the_first_agree(monkeypatch):
    asked = []
    monkeypatch.setattr(FormulaPair, "places", lambda self, factor=1.0: asked.append(factor) or iter(()))
    assert not equal("x+1", "x+2y")
    assert not asked
    assert equal("x+1", "1+x\\cdot 1^y")
    assert asked


def test_a_function_that_has_no_cheap_values_is_compared_at_more_exact_points():
    x = Symbol("x", real=True)
    assert FormulaPair.of(zeta(x), x) is None
    assert numeric.same(zeta(3 + x**2) + atan(tan(x)), zeta(3 + x**2) + x) is False


def test_a_tiny_complex_number_is_not_real():
    assert not numeric._real((1 + I) * Rational(1, 10**30))
    assert numeric._real(1 + I * Rational(1, 10**30))


def test_points_lie_on_both_sides_of_every_number_of_a_formula():
    x = Symbol("x", real=True)
    pair = FormulaPair.of(sin(x - 777), sin(x - 777))
    places = [place for (place,), alike in pair.places() if alike]
    assert {777.0, -777.0} <= set(places)
    assert min(places) < -1e6
    assert max(places) > 1e6
    assert any(776 < place < 777 for place in places)
    assert any(777 < place < 778 for place in places)


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (r"\sqrt[3]{-27}", "-3", True),
        (r"\sqrt[3]{-27}", r"\frac{3+3i\sqrt3}{2}", False),
        (r"-\sqrt[5]{3}", r"\sqrt[5]{-3}", True),
        (r"\sqrt[5]{3}", r"\sqrt[5]{-3}", False),
        ("4", r"\sqrt[3]{(-8)^2}", True),
        ("4", r"(-8)^{\frac23}", True),
        ("1", r"\sqrt[3]{9+4\sqrt5}+\sqrt[3]{9-4\sqrt5}-2", True),
        ("3", r"\sqrt[3]{9+4\sqrt5}+\sqrt[3]{9-4\sqrt5}", True),
        ("-1", r"\sqrt[3]{2-\sqrt5}-\sqrt[3]{2+\sqrt5}+\sqrt5-1", True),
        (r"\frac{1+i\sqrt3}{2}", r"e^{i\pi/3}", True),
        ("i", r"\sqrt{-1}", True),
    ],
)
def test_an_odd_root_of_a_negative_constant_is_real(gold, answer, expected):
    assert equal(gold, answer) is expected


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("10^{13}-x", "|x-10^{13}|"),
        ("e^{17}-x", "|x-e^{17}|"),
        (r"\pi^{16}-y", r"|y-\pi^{16}|"),
        ("3^{17}-x", "|x-3^{17}|"),
        ("x", r"\min(x,10^{16})"),
        ("x", r"\min(x,10^{16})+0\cdot 2\cdot 3\cdot 5"),
        ("0", r"\max(0,x-10^{10})"),
        ("0", r"\max(0,\frac{x}{10^{11}}-1)"),
        ("0", r"\max(0,\ln x-35)"),
        ("0", r"|x-10^7y|-|10^7y-x|+\max(0,\ln y-25)"),
        ("x", r"x+\max(0,\frac15-|x-e|)"),
        ("x+y", r"x+y+\max(0,\frac1{20}-|y-\sqrt7|)"),
        (r"\binom{n}{3}", r"\binom{n}{3}+|n-200|+n-200"),
        (r"\binom{n}{2}", r"\binom{n}{2}+\max(0,n-150)"),
        (r"\binom{n}{k}", r"\binom{n}{k}+\max(0,|n|-150)"),
        (r"\lfloor x\rfloor", r"\lceil x-0.9991\rceil"),
        (r"\lfloor 2x\rfloor", r"\lfloor x\rfloor+\lfloor x+0.4993\rfloor"),
        (r"\lfloor 3x\rfloor", r"\lfloor x\rfloor+\lfloor x+\frac13\rfloor+\lfloor x+0.6663\rfloor"),
    ],
)
def test_kinks_far_out_around_any_constant_and_beside_steps(gold, answer):
    assert not equal(gold, answer)
    assert not equal(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\lfloor 3x\rfloor", r"\lfloor x\rfloor+\lfloor x+\frac13\rfloor+\lfloor x+\frac23\rfloor"),
        (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
        (r"\binom{n}{3}", r"\frac{n(n-1)(n-2)}{6}"),
        (r"n\binom{n-1}{k-1}", r"k\binom{n}{k}"),
        (r"\binom{n+1}{k}", r"\binom{n}{k}+\binom{n}{k-1}"),
        ("10^{13}(x+1)-x", r"(10^{13}-1)x+10^{13}"),
    ],
)
def test_steps_and_binomials_that_are_equal(gold, answer):
    assert equal(gold, answer)
