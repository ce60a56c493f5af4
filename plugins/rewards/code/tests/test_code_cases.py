"""Which shapes of test_cases are read, and what is said of the others."""

import json

import pytest
from rlcore_plugin_code.cases import BadCases, Case, chosen, read_cases
from rlcore_plugin_code.reward import CodeReward

ADD = {"inputs": ["1 2\n", "é\n"], "outputs": ["3\n", "é"]}
READ = (Case(1, b"1 2\n", b"3\n"), Case(2, "é\n".encode(), "é".encode()))


@pytest.mark.parametrize(
    "column",
    [
        ADD,
        json.dumps(ADD),
        {"inputs": (["1 2", ""], ["é", ""]), "outputs": ("3\n", ["é"]), "fn_name": None},
        {**ADD, "language": "python"},
    ],
)
def test_shapes(column):
    assert read_cases(column) == READ


def test_lists_of_lines_are_joined():
    assert read_cases({"inputs": [["2", "1 2"]], "outputs": [["1", "2"]]}) == (Case(1, b"2\n1 2", b"1\n2"),)


BAD = [
    (None, "but is null"),
    ([], "must be"),
    (3, "type int"),
    ({}, "no 'inputs'"),
    ({"inputs": ["1"]}, "no 'outputs'"),
    ({"inputs": "1", "outputs": "1"}, "inputs is of type str"),
    ({"inputs": [], "outputs": []}, "no test"),
    ({"inputs": ["1"], "outputs": ["1", "2"]}, "1 inputs and 2 outputs"),
    ({"inputs": [1], "outputs": ["1"]}, "input 1 of test_cases is of type int"),
    ({"inputs": ["1", "2"], "outputs": ["1", None]}, "output 2 of test_cases is null"),
    ({"inputs": [["1", 2]], "outputs": ["1"]}, "a list of other things"),
    ({"inputs": ["1", "2"], "outputs": ["1", " \n"]}, "output 2 of test_cases is empty"),
    ({"inputs": ["1"], "outputs": [[]]}, "output 1 of test_cases is empty"),
    ({"inputs": ["\ud800"], "outputs": ["1"]}, "surrogate"),
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    (json.dumps(json.dumps(ADD)), "type str"),
]


@pytest.mark.parametrize(("column", "words"), BAD, ids=[words for _, words in BAD])
def test_what_cannot_be_used_is_one_sentence(column, words):
    with pytest.raises(BadCases) as caught:
        read_cases(column)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value) == CodeReward().check({"test_cases": column})


def test_what_is_too_large(monkeypatch):
    monkeypatch.setattr("rlcore_plugin_code.cases._LARGEST_MIB", 1)
    read_cases({"inputs": ["x" * ((1 << 19) - 1)] * 2, "outputs": ["1"] * 2})
    with pytest.raises(BadCases, match=r"has 1\.0 MiB; a row may have 1 MiB"):
        read_cases({"inputs": ["x" * (1 << 19)] * 2, "outputs": ["1"] * 2})


def test_check_accepts():
    assert CodeReward().check({"test_cases": ADD}) is None


def rows(count, salt=""):
    texts = [f"{salt}{number}" for number in range(count)]
    return read_cases({"inputs": texts, "outputs": texts})


def test_the_order_follows_from_the_content():
    cases = rows(20)
    order = [case.number for case in chosen(cases, 100)]
    assert order == [case.number for case in chosen(cases, 100)]
    assert sorted(order) == list(range(1, 21))
    assert order != sorted(order)
    assert order != [case.number for case in chosen(rows(20, "x"), 100)]


def test_at_most_so_many():
    assert chosen(rows(20), 3) == chosen(rows(20), 100)[:3]
    starts = {chosen(rows(20, str(salt)), 1)[0].number for salt in range(200)}
    assert len(starts) == 20  # any of them may come first


def test_what_is_input_and_what_is_output_counts():
    one, other = ({"inputs": ["a", "bc"] * 9, "outputs": ["b", "c"] * 9}, {"inputs": ["ab", "c"] * 9, "outputs": ["b", "c"] * 9})
    assert [case.number for case in chosen(read_cases(one), 99)] != [case.number for case in chosen(read_cases(other), 99)]
