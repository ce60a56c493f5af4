"""When two outputs are equal: rows decided by hand, and laws."""

import math
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rlcore_plugin_code.compare import numeric, same_output


def same(expected, actual, tolerance=1e-6):
    return same_output(expected.encode(), actual.encode(), tolerance=tolerance)


EQUAL = [
    ("3\n", "3"),
    ("3\n", "\n\n 3 \r\n\x0b\x0c\t"),
    ("1 2\n3", "1\n2 3\n"),
    ("0.5", "0.5000004"),
    ("0.5", ".5"),
    ("0.5", "5e-1"),
    ("2.0", "2"),
    ("2.", "+2.0"),
    ("1e-3", "0.001"),
    ("1e3", "1000"),
    ("1e+16", "10000000000000000"),
    ("0.0", "-0.0"),
    ("1000000.0", "1000000.9"),  # relative
    ("-3.5", "-3.5000001"),
    ("nan", "nan"),
    ("inf", "inf"),
    ("YES", "YES"),
    ("h\u00e9 \U0001f600", "h\u00e9 \U0001f600"),
    ("9" * 5000, "9" * 5000),
    ("1." + "0" * 500, "1." + "0" * 500),
]
DIFFERENT = [
    ("3", "3.0"),
    ("3", "+3"),
    ("3", "03"),
    ("3", "3e0"),
    ("0", "-0"),
    ("3", "\u0663"),
    ("0.3", "\u0660.\u0663"),
    ("3", "3\u00a0"),
    ("1 2", "1\u00a02"),
    ("1 2", "1\u20282"),
    ("1 2", "1\x1c2"),
    ("3", "3\u200b"),
    ("3", "\ufeff3"),
    ("3", "\x1b[32m3\x1b[0m"),
    ("3", "3\x00"),
    ("3", "3 4"),
    ("3", ""),
    ("3 4", "3"),
    ("1 2", "2 1"),
    ("1 2", "1 1 2"),
    ("1 2", "12"),
    ("1000000008", "1000000007"),
    ("-1000001\n-1", "-1000000\n-1"),
    ("9" * 400, "9" * 399 + "8"),
    ("1.5", "nan"),
    ("1.5", "inf"),
    ("inf", "1e400"),
    ("nan", "1.5"),
    ("nan", "0"),
    ("inf", "-inf"),
    ("inf", "infinity"),
    ("1e400", "1e401"),
    ("1e400", "inf"),
    ("1e400", "1.5"),
    ("1.5", "1e400"),
    ("1.5", "1_.5"),
    ("10.5", "1_0.5"),
    ("1.5", "0x1.8p0"),
    ("1.5", "1.5f"),
    ("0.5", "0.50001"),
    ("0.5", "-0.5"),
    ("YES", "yes"),
    ("[1, 2]", "[1,2]"),
    ("1e", "1.0"),
    (".", "0.0"),
    ("e5", "5"),
    ("1." + "0" * 500, "1.0"),
    ("", ""),
    (" \n", ""),
    (" \n", " \n"),
]


@pytest.mark.parametrize(("expected", "actual"), EQUAL)
def test_equal(expected, actual):
    assert same(expected, actual)


@pytest.mark.parametrize(("expected", "actual"), DIFFERENT)
def test_different(expected, actual):
    assert not same(expected, actual)


def test_the_tolerance_is_an_option():
    assert same("0.5", "0.509", tolerance=0.01)
    assert not same("0.5", "0.5000004", tolerance=1e-9)
    assert same("0.5", "0.50", tolerance=0)
    assert not same("5", "6", tolerance=0.5)


def test_bytes_that_are_no_text_equal_only_themselves():
    assert not same_output("\ufffd".encode(), b"\xff", tolerance=1e-6)
    assert not same_output(b"3", b"3\xff", tolerance=1e-6)


WORDS = st.lists(st.from_regex(rb"[!-~\x80-\xff]{1,8}", fullmatch=True), min_size=1, max_size=12)
BLANKS = st.from_regex(rb"[ \t\r\n\x0b\x0c]{1,3}", fullmatch=True)


@given(words=WORDS, data=st.data())
def test_blanks_never_count(words, data):
    spread = b"".join(data.draw(BLANKS) + word for word in words) + data.draw(BLANKS)
    assert same_output(b" ".join(words), spread, tolerance=1e-6)
    assert same_output(spread, b"\n".join(words), tolerance=1e-6)


@given(words=WORDS, extra=st.integers(1, 3))
def test_the_number_of_tokens_counts(words, extra):
    assert not same_output(b" ".join(words), b" ".join(words + words[:1] * extra), tolerance=1e-6)
    assert not same_output(b" ".join(words + words[:1] * extra), b" ".join(words), tolerance=1e-6)


@given(left=st.integers(), right=st.integers())
def test_integers_are_exact(left, right):
    assert same(str(left), str(right), tolerance=0.9) == (left == right)


@given(integer=st.integers(), fraction=st.floats(allow_nan=True, allow_infinity=True))
def test_a_fraction_is_never_taken_for_an_integer(integer, fraction):
    assert not same(str(integer), repr(fraction), tolerance=0.9)


@given(left=st.floats(allow_nan=False, allow_infinity=False), right=st.floats(allow_nan=False, allow_infinity=False))
def test_fractions_by_the_larger_of_both_errors(left, right):
    error, bound = abs(Decimal(left) - Decimal(right)), Decimal("1e-6") * max(Decimal(1), abs(Decimal(left)))
    assume(not Decimal("0.999") < error / bound < Decimal("1.001"))  # rounding decides there
    assert same(repr(left), repr(right)) == (error <= bound)


@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32), digits=st.integers(1, 20))
def test_spellings_of_one_number(value, digits):
    for spelling in (f"{value:.20e}", f"{Decimal(value):f}", f"{Decimal(value):+E}"):
        assert same(repr(value), spelling)
    assert math.isclose(value, float(f"{value:.{digits}f}"), rel_tol=1e-6, abs_tol=1e-6) == same(repr(value), f"{value:.{digits}f}")


def test_a_flood_is_not_cut_to_tokens():
    flood = b"1 " * (1 << 21)
    tracemalloc.start()
    assert not same_output(b"1 2", flood, tolerance=1e-6)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(flood)


NUMERIC = [
    (["0.5\n", "3\n"], True),
    (["Case #1: 0.5\n", "Case #2: -1e-05\n"], True),
    (["1: 0.5 yes\n"], True),
    (["YES\n0.5 0.25\n", "NO\n"], True),
    (["1.10\n", "1.10.2\n"], False),
    (["v1.10 0.5\n"], False),
    (["0.5\n", "a1\n"], False),
    (["0.5%\n"], False),
    (["no digits\n"], True),
]


@pytest.mark.parametrize(("outputs", "said"), NUMERIC)
def test_rows_whose_fractions_are_numbers(outputs, said):
    assert numeric(output.encode() for output in outputs) is said


@pytest.mark.parametrize(
    ("expected", "actual"), [("0e830400451993494058024219903391", "0e462097431906509019562988736854"), ("12e4", "120000"), ("1.10", "1.1")]
)
def test_text_that_looks_like_a_number_is_text(expected, actual):
    assert not same_output(expected.encode(), actual.encode(), tolerance=1e-6, numbers=False)
    assert same(expected, actual) == (expected == "1.10")


def test_both_tolerances_are_options():
    def close(expected, actual, **bounds):
        return same_output(expected.encode(), actual.encode(), **bounds)

    assert close("1000.0", "1000.5", tolerance=1e-9, relative=1e-3)
    assert not close("1000.0", "1000.5", tolerance=1e-9, relative=1e-4)
    assert close("0.0001", "0.0005", tolerance=1e-3, relative=1e-9)
    assert not close("0.0001", "0.0005", tolerance=1e-4, relative=1e-9)
    assert close("0.5", "0.50", tolerance=0, relative=0)
    assert not close("0.5", "0.5000001", tolerance=0, relative=0)
