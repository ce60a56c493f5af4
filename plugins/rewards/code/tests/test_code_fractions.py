"""Whole numbers with a point and without, in rows that expect fractions and in rows that do not."""

import pytest
from rlcore_plugin_code.compare import has_fractions, same_output

from rlcore.api import Outcome

ROW = {"inputs": ["1", "2", "3"], "outputs": ["0.5 7\n", "3\n", "-40\n"]}
ACCEPTED = {"inputs": ["1"], "accepted": [["8\n", "8.25\n"]]}


def prints(*outputs):
    return f"print({dict(enumerate(outputs, start=1))}[int(input())])"


RIGHT = {
    "as expected": (ROW, prints("0.5 7", "3", "-40")),
    "with points": (ROW, prints("0.5 7.0", "3.00", "-40.")),
    "with exponents": (ROW, prints("5e-1 7.0e0", "3e0", "-4.0e+1")),
    "one of several valid outputs": (ACCEPTED, prints("8.0")),
    "another of them": (ACCEPTED, prints("8.2500000001")),
    "the row says that they are numbers": ({**ROW, "outputs": ["0.5 7", "v1.2", "4"], "numeric": True}, prints("0.5 7.0", "v1.2", "4.0")),
}
WRONG = {
    "nearly a whole number": (ROW, prints("0.5 7.0000001", "3", "-40")),
    "nearly a whole number, in another test": (ROW, prints("0.5 7", "2.9999999", "-40")),
    "another whole number": (ROW, prints("0.5 7.0", "4.0", "-40")),
    "without its sign": (ROW, prints("0.5 7.0", "3.0", "40.0")),
    "a row without fractions": ({**ROW, "outputs": ["7", "3", "-40"]}, prints("7", "3.0", "-40")),
    "a row that says it has no numbers": ({**ROW, "numeric": False}, prints("0.5 7.0", "3", "-40")),
    "a row with a version": ({**ROW, "outputs": ["0.5 7", "1.2.3", "3"]}, prints("0.5 7.0", "1.2.3", "3")),
}


@pytest.mark.parametrize("name", RIGHT)
def test_rows_where_it_is_right(bench, name):
    score = bench.judge(*RIGHT[name])
    assert score.outcome is Outcome.OK, score.reason


@pytest.mark.parametrize("name", WRONG)
def test_rows_where_it_is_wrong(bench, name):
    assert bench.judge(*WRONG[name]).outcome is Outcome.WRONG


def same(wanted, found):
    return same_output(wanted.encode(), found.encode(), tolerance=1e-6, fractions=True)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("0", "0.0"), ("0", "-0.0"), ("12", "+12.0"), ("9007199254740991", "9007199254740991.0"), ("-5", "-5.000"), ("100", "1e2")],
)
def test_tokens_that_are_equal(wanted, found):
    assert same(wanted, found)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("12", "12.0x"),
        ("12", "012"),
        ("012", "12.0"),
        ("+12", "12.0"),
        ("-0", "0.0"),
        ("12", "+12"),
        ("12", "12e0"),
        ("12", "1200e-2"),
        ("9007199254740992", "9007199254740992.0"),
        ("100000000000000000000", "100000000000000000000.0"),
        ("100000000000000000000", "1e20"),
        ("1" + "0" * 400, "1e400"),
        ("3", "3." + "0" * 400),
        ("3", "1e" + "9" * 300),
        ("3", "-1e-" + "9" * 300),
        ("3", "inf"),
        ("3", "nan"),
        ("1:", "1.0:"),
        ("1:", "1.0"),
        ("#1", "1.0"),
        ("3", "[3.0]"),
        ("3 4", "3.0"),
        ("3", "3 .0"),
    ],
)
def test_tokens_that_are_not(wanted, found):
    assert not same(wanted, found)


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ([], False),
        (["1", "2 3\n"], False),
        (["1", "2 3.5\n"], True),
        (["1e-05"], True),
        ([".5"], True),
        (["1.2.3", "end.", "e"], False),
        (["Case 1: 2"], False),
    ],
)
def test_which_rows_have_fractions(outputs, said):
    assert has_fractions(output.encode() for output in outputs) is said
