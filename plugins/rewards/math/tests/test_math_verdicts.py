"""Verdicts that were wrong once, each beside its opposite, and the published tables of other graders."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from pydantic import ValidationError
from rlcore_plugin_math.bound import indexed
from rlcore_plugin_math.choices import choice
from rlcore_plugin_math.codes import lettered, numbered
from rlcore_plugin_math.compare import Equality, LimitExceeded, compare
from rlcore_plugin_math.options import BoxedOptions
from rlcore_plugin_math.parts import labelled_parts
from rlcore_plugin_math.phrases import numeral
from rlcore_plugin_math.rewards import BoxedReward
from rlcore_plugin_math.tolerance import EXACT, Tolerance
from rlcore_plugin_math.units import conversion

from rlcore.api import Outcome, RewardInput

HERE = Path(__file__).parent


def rows(name):
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def equal(gold, answer, *, strict=False, tolerance=EXACT):
    try:
        return compare(gold, answer, seconds=30.0, strict=strict, tolerance=tolerance) in (Equality.EQUAL, Equality.AS_TEXT)
    except LimitExceeded:
        return False


@pytest.mark.parametrize("row", rows("verdicts.jsonl"), ids=lambda row: f"{row['gold']} | {row['answer']}")
def test_a_verdict_that_was_wrong_and_its_opposite(row):
    assert equal(row["gold"], row["answer"]) is row["expected"]
    assert equal(row["gold"], row["answer"], strict=True) is row["strict"]


def test_every_group_of_verdicts_has_both_signs():
    signs = [row["expected"] for row in rows("verdicts.jsonl")]
    assert signs.count(True) > 100 < signs.count(False)


MISSED = {
    ("D", "D. it can't be A or B"),  # names other options, as a hedge would
    (r"W(n) = 1 \text{ and } W(n) = -1", "W(x)=1orW(x)=-1"),
    (r"\begin{matrix} \frac12 \\ 1 \end{matrix}", "[0.5, 1]"),  # a row for a column
    ("1000.99", "1000,99"),  # a comma is never a decimal point
    ("1,22", "1.22"),
    ("0,111", "0.111"),
    ("185", "185\\"),  # cannot even be boxed
    ("1000.99", "1,000.99m²"),  # a letter that touches its number may be an unknown
    ("17", r"17\text{ any text}"),
    ("ACD", "DCA"),  # several options at once, or an order of finishers
    ("-99 ≤  9-12r ≤  45", "-3≤ r≤ 9"),  # an inequality and its solution
}


def published():
    return [*rows("published/chosen_here.jsonl"), *rows("published/chosen_blind.jsonl")]


@pytest.mark.parametrize("part", range(4))
def test_published_tables(part):
    """No wrong acceptance; the refusals are those that are known."""
    judged = published()[part::4]
    wrong = []
    for row in judged:
        options = BoxedOptions(relative_tolerance=row.get("relative_tolerance", 0.0))
        item = RewardInput(messages=(), columns={"gt_answer": row["gold"]}, text=rf"so \boxed{{{row['answer']}}}")
        right = BoxedReward(options).score(item).outcome is Outcome.OK
        if right is not row["expected"] and (row["gold"], row["answer"]) not in MISSED:
            wrong.append((row["gold"], row["answer"], row["expected"]))
    assert wrong == []


def test_published_rows_name_their_source():
    found = published()
    assert len(found) >= 400
    assert len({(row["gold"], row["answer"]) for row in found}) == len(found)
    assert all(row["repository"].count("/") == 1 and row["licence"] for row in found)
    assert {(row["gold"], row["answer"]) for row in found} >= MISSED


@pytest.mark.parametrize(
    ("gold", "answer", "tolerance", "expected"),
    [
        ("125.66", r"40\pi", Tolerance(stated_digits=True), True),
        ("125.66", r"40\pi", EXACT, False),
        ("125.66", r"40.01\pi", Tolerance(stated_digits=True), False),
        ("125.66", "125.6637", Tolerance(stated_digits=True), True),
        ("125.66", "125.67", Tolerance(stated_digits=True), False),
        (r"40\pi", "125.66", Tolerance(stated_digits=True), False),  # the answer's digits are no licence: 0 would be 1/3
        (r"40\pi", "125.66", Tolerance(relative=Fraction(1, 10000)), True),
        (r"40\pi", "125.6", Tolerance(relative=Fraction(1, 10000)), False),
        (r"40\pi", "125.66", Tolerance(absolute=Fraction(1, 100)), True),
        (r"40\pi", "125.65", Tolerance(absolute=Fraction(1, 100)), False),
        ("100", "101", Tolerance(relative=Fraction(1, 1000)), False),
        ("100", "101", Tolerance(absolute=Fraction(1)), True),
        ("1/3", "0.3333", Tolerance(relative=Fraction(1, 1000)), True),
        ("1/3", "-0.3333", Tolerance(relative=Fraction(1, 1000)), False),
        ("x = 1/3", "x = 0.3333", Tolerance(relative=Fraction(1, 1000)), True),
        ("(1/3, 2)", "(0.3333, 2)", Tolerance(relative=Fraction(1, 1000)), True),
        ("(1/3, 2)", "(2, 0.3333)", Tolerance(relative=Fraction(1, 1000)), False),
        (r"33.3\%", "1/3", Tolerance(stated_digits=True), True),
        (r"33.3\%", "0.34", Tolerance(stated_digits=True), False),
        ("3.0 cm", "30.2 mm", Tolerance(stated_digits=True), True),
        ("3.0 cm", "30.9 mm", Tolerance(stated_digits=True), False),
        (r"1.26 \times 10^{2}", r"40\pi", Tolerance(stated_digits=True), True),
        (r"1.26 \times 10^{2}", r"41\pi", Tolerance(stated_digits=True), False),
        ("1011_2", "1010_2", Tolerance(absolute=Fraction(1)), False),
        ("9:05", "9:06", Tolerance(absolute=Fraction(1)), False),
        ("x+0.5", "x+0.51", Tolerance(relative=Fraction(1, 10)), False),  # a formula with an unknown is no number
    ],
)
def test_a_tolerance(gold, answer, tolerance, expected):
    assert equal(gold, answer, tolerance=tolerance) is expected
    if r"\%" not in gold and "cm" not in gold:
        assert equal(gold, answer, tolerance=tolerance, strict=True) is expected


def test_a_tolerance_is_an_option_and_off_by_default():
    item = RewardInput(messages=(), columns={"gt_answer": "125.66"}, text=r"\boxed{40\pi}")
    assert BoxedReward().score(item).outcome is Outcome.WRONG
    for options in ({"stated_digits": True}, {"absolute_tolerance": 0.01}, {"relative_tolerance": 0.001}):
        assert BoxedReward(BoxedOptions(**options)).score(item).outcome is Outcome.OK
    for options in ({"absolute_tolerance": -1}, {"relative_tolerance": 1}, {"relative_tolerance": float("nan")}):
        with pytest.raises(ValidationError):
            BoxedOptions(**options)


def test_pieces_say_what_a_text_is():
    assert choice("B or C") is None
    assert choice(r"\text{(E)} 7").letter == "E"
    assert labelled_parts("(a)(b)") is None
    assert labelled_parts("b) 2 a) 1") == ("1", "2")
    assert numbered("10-3-2") is None
    assert numbered("10-3-2", gold=True) == ("code", "10", "3", "2")
    assert lettered("2x") is None
    assert lettered("1e5") is None
    assert indexed(r"\sum_{k=1}^n x_j") is False
    assert numeral("nine hundred ninety-nine thousand and one") == 999_001
    assert numeral("one two") is None
    assert conversion("cm", "g") is None
    assert conversion("m^3", "cm^3") == 10**6
