"""Deep recursion and whole numbers of many digits, in every style of tests, on both sides."""

import json

import pytest
from rlcore_plugin_code.digits import MOST_DIGITS, decimal, read_json, whole
from rlcore_plugin_code.rows.apps import apps_row
from rlcore_plugin_code.styles import read_suite
from rlcore_plugin_code.suite import BadCases
from rlcore_plugin_code.values import same_value

from rlcore.api import Outcome

DEEP = 120_000
DIGITS = 30_000
BIG = 7 * 10 ** (DIGITS - 1)
BIG_TEXT = "7" + "0" * (DIGITS - 1)
DOWN = "def f(n):\n    return 1 + f(n - 1) if n else 0"
BY_SORTING = "def f(n):\n    return sorted([n], key=lambda n: n and f(n - 1))[0]"
CACHED = "from functools import cache\n@cache\ndef f(n):\n    return 1 + f(n - 1) if n else 0"


def in_styles(argument, result):
    """Tests of ``f(argument) == result`` in each style that calls functions."""
    one = f"assert f({argument}) == {result}"
    return {
        "function": {"fn_name": "f", "inputs": [str(argument)], "outputs": [str(result)]},
        "asserts": {"asserts": [one]},
        "check": {"check": f"def check(g):\n    {one.replace('f(', 'g(')}\n", "entry_point": "f"},
        "test file": {"test_file": f"from solution import f\ndef test_f():\n    {one}\n"},
    }


def passes(bench, tests, program):
    score = bench.judge(tests, program)
    assert score.outcome is Outcome.OK, score.reason
    assert bench.judge(tests, f"{program}\nwas = f\ndef f(*given):\n    return -was(*given) - 1").outcome is Outcome.WRONG


@pytest.mark.parametrize("style", in_styles(0, 0))
def test_functions_that_call_themselves_deep(level_bench, style):
    passes(level_bench, in_styles(DEEP, DEEP)[style], DOWN)


@pytest.mark.parametrize(("program", "depth", "result"), [(BY_SORTING, 15_000, 15_000), (CACHED, 20_000, 20_000)])
def test_functions_that_call_themselves_through_c(level_bench, program, depth, result):
    passes(level_bench, in_styles(depth, result)["function"], program)


def test_programs_that_read_input(level_bench):
    tests = {"inputs": [f"{DEEP}\n"], "outputs": [f"{DEEP}\n"]}
    assert level_bench.judge(tests, f"{DOWN}\nprint(f(int(input())))").outcome is Outcome.OK
    tests = {"inputs": [f"{BIG_TEXT}\n"], "outputs": [BIG_TEXT[:-1] + "1"]}
    assert level_bench.judge(tests, "print(int(input()) + 1)").outcome is Outcome.OK
    assert level_bench.judge(tests, "print(int(input()) + 2)").outcome is Outcome.WRONG


def test_a_checker_reads_as_many(level_bench):
    checker = f"{DOWN}\nassert f({DEEP}) == {DEEP}\nassert int(open('output.txt').read()) == int(open('input.txt').read())\n"
    assert level_bench.judge({"inputs": [BIG_TEXT], "checker": checker}, "print(input())").outcome is Outcome.OK
    assert level_bench.judge({"inputs": [BIG_TEXT], "checker": checker}, "print(input() + '0')").outcome is Outcome.WRONG


def test_the_program_finds_no_trace_of_its_start(level_bench):
    program = (
        "from __future__ import annotations\nleft = {name for name in globals() if not name.startswith('__')} - {'annotations'}\n"
        "print(input() if not left and __name__ == '__main__' and 'sys' not in dir() else left)"
    )
    assert level_bench.judge({"inputs": ["a"], "outputs": ["a"]}, program).outcome is Outcome.OK
    assert level_bench.judge({"inputs": ["a"], "outputs": ["a"]}, f"sys.setrecursionlimit(9)\n{program}").outcome is Outcome.WRONG


def test_recursion_without_an_end_is_wrong(bench):
    for style in ("function", "asserts"):
        score = bench.judge(in_styles(1, 1)[style], "def f(n):\n    return f(n + 1)")
        assert score.outcome is Outcome.WRONG
        assert "RecursionError" in score.reason


@pytest.mark.parametrize("style", in_styles(0, 0))
def test_numbers_of_many_digits(level_bench, style):
    """As argument, as result, and as text in between."""
    passes(level_bench, in_styles(BIG_TEXT, BIG_TEXT[:-1] + "1")[style], "def f(n):\n    return int(str(n)) + 1")


def test_numbers_of_many_digits_in_the_tests(level_bench):
    tests = {"asserts": [f"assert str(f({DIGITS})) == '7' + '0' * {DIGITS - 1}", f"assert int('9' * {DIGITS}) > f({DIGITS})"]}
    passes(level_bench, tests, "def f(n):\n    return 7 * 10 ** (n - 1)")
    parts = {"asserts": [f"from fractions import Fraction\nassert f({DIGITS}) == Fraction(1, 10 ** {DIGITS})"], "names": ["f"]}
    assert level_bench.judge(parts, "from fractions import Fraction\ndef f(n):\n    return Fraction(1, 10 ** n)").outcome is Outcome.OK


COLUMNS = {
    "plain": {"fn_name": "f", "inputs": [[BIG]], "outputs": [BIG]},
    "a JSON text": f'{{"fn_name": "f", "inputs": [[{BIG_TEXT}]], "outputs": [{BIG_TEXT}]}}',
    "inside lists and tables": f'{{"fn_name": "f", "inputs": [[[{{"a": -{BIG_TEXT}}}]]], "outputs": [[{{"a": -{BIG_TEXT}}}]]}}',
    "keys": f'{{"fn_name": "f", "inputs": [[{{"{BIG_TEXT}": 1}}]], "outputs": [{{"{BIG_TEXT}": 1}}]}}',
    "several valid": {"fn_name": "f", "inputs": [[BIG]], "accepted": [[1, BIG]]},
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_hold_such_numbers(bench, name):
    score = bench.judge(COLUMNS[name], "def f(n):\n    return n")
    assert score.outcome is Outcome.OK, score.reason
    assert bench.judge(COLUMNS[name], "def f(n):\n    return [n]").outcome is Outcome.WRONG


def test_a_number_beyond_the_bound_is_said_so():
    with pytest.raises(BadCases, match="60000 digits; at most 50000"):
        read_suite(f'{{"fn_name": "f", "inputs": [[1]], "outputs": [{"1" * 60_000}]}}')


def test_rows_of_apps_hold_such_numbers():
    held = f'{{"fn_name": "f", "inputs": [[{BIG_TEXT}]], "outputs": [[{BIG_TEXT}]]}}'
    row = apps_row({"problem_id": 1, "question": "f?", "input_output": held, "starter_code": ""})
    assert row["test_cases"]["outputs"] == [[BIG]]


def test_a_program_may_answer_with_longer_numbers():
    """They are written as hexadecimal digits, which take no such time."""
    assert same_value(10**200_000, {"i": hex(10**200_000)}, absolute=0, relative=0)
    assert not same_value({"1": 1}, {"d": [[{"i": hex(10**200_000)}, 1]]}, absolute=0, relative=0)
    assert same_value({BIG_TEXT: 1}, {"d": [[{"i": hex(BIG)}, 1]]}, absolute=0, relative=0)


@pytest.mark.parametrize("zeros", [0, 3998, 3999, 4000, 7999, 12_345, MOST_DIGITS - 2])
@pytest.mark.parametrize("sign", ["", "-"])
def test_digits_are_read_and_written_exactly(zeros, sign):
    written, number = f"{sign}2{'0' * zeros}9", int(f"{sign}1") * (2 * 10 ** (zeros + 1) + 9)
    assert whole(written) == number
    assert decimal(number) == written
    assert read_json(f"[{written}, 1.5]") == [number, 1.5]


@pytest.mark.parametrize("text", ["", "--5", "+5", "5 ", "0x5", "1_0"])
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises(ValueError, match="not a whole number"):
        whole(text)


def test_json_is_refused_as_before():
    with pytest.raises(json.JSONDecodeError):
        read_json("[1, ")
    with pytest.raises(RecursionError):
        read_json("[" * 100_000)
