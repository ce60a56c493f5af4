r"""Spellings of the same answer that people write: sets, congruences, vectors, letters without a meaning, other scripts, nouns.

Each kind of ``readings.jsonl`` has answers that are right and near misses that are not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError
from rlcore_plugin_math.compare import Equality, LimitExceeded, compare
from rlcore_plugin_math.options import BoxedOptions
from rlcore_plugin_math.rewards import BoxedReward

from rlcore.api import Outcome, RewardInput

ROWS = [json.loads(line) for line in (Path(__file__).parent / "readings.jsonl").read_text(encoding="utf-8").splitlines()]
KINDS = tuple(dict.fromkeys(row["kind"] for row in ROWS))


def equal(gold, answer, **options):
    try:
        return compare(gold, answer, seconds=30.0, **options) in (Equality.EQUAL, Equality.AS_TEXT)
    except LimitExceeded:
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_reading(kind):
    rows = [row for row in ROWS if row["kind"] == kind]
    assert [row for row in rows if equal(row["gold"], row["answer"]) is not row["expected"]] == []
    signs = [row["expected"] for row in rows]
    assert signs.count(True) >= 5 <= signs.count(False)


def score(gold, text, **options):
    return BoxedReward(BoxedOptions(**options)).score(RewardInput(messages=(), columns={"gt_answer": gold}, text=text)).outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (r"so \fbox{17}", Outcome.OK),
        (r"so \fbox{$17$}", Outcome.OK),
        (r"so \framebox{17}", Outcome.OK),
        (r"so \framebox[2cm][c]{17}", Outcome.OK),
        (r"so \boxed{\fbox{17}}", Outcome.OK),
        (r"so \fbox{x = 17}", Outcome.OK),
        (r"so \fbox{17} or \boxed{18}", Outcome.WRONG),  # the last box counts
        (r"so \boxed{17} or \fbox{18}", Outcome.WRONG),
        (r"so \fbox{71}", Outcome.WRONG),
        (r"<think>\fbox{17}</think> none", Outcome.MALFORMED),
        (r"so \fbox{17", Outcome.MALFORMED),
        (r"so \mbox{17}", Outcome.MALFORMED),
        (r"so \foxbox 17", Outcome.MALFORMED),
    ],
)
def test_a_frame_is_a_box(text, outcome):
    assert score("17", text) is outcome


@pytest.mark.parametrize(
    ("gold", "answer", "auto", "strict"),
    [
        ("6", "6 cm", True, False),
        ("6 cm", "6", True, False),
        ("6 cm", "60 mm", True, False),
        (r"3\sqrt{2}\text{ m}", r"3\sqrt{2}", True, False),
        (r"\$40", "40", True, False),
        ("30", r"30^\circ", True, False),
        ("9 apples", "9", True, False),
        ("90天", "90", True, False),
        ("6 cm", "6 centimeters", True, True),
        ("6 cm", "6 m", False, False),
        ("6 mil", "6", False, False),
    ],
)
def test_a_missing_unit_is_right_by_default_and_wrong_if_asked(gold, answer, auto, strict):
    boxed = rf"\boxed{{{answer}}}"
    assert (score(gold, boxed) is Outcome.OK) is auto
    assert (score(gold, boxed, missing_unit="accept") is Outcome.OK) is auto
    assert (score(gold, boxed, strictness="strict") is Outcome.OK) is strict
    missing = (gold, answer) not in (("6 cm", "60 mm"), ("6 cm", "6 centimeters"))
    assert (score(gold, boxed, missing_unit="refuse") is Outcome.OK) is not missing


def test_a_missing_unit_is_an_option_of_its_own():
    assert score("6 cm", r"\boxed{6}", strictness="strict", missing_unit="accept") is Outcome.OK
    assert score("6 cm", r"\boxed{60\text{ mm}}", strictness="strict", missing_unit="accept") is Outcome.WRONG
    assert score("0.5", r"\boxed{50\%}", missing_unit="refuse") is Outcome.OK  # a per cent sign is a factor too
    assert score("50", r"\boxed{50\%}", missing_unit="refuse") is Outcome.WRONG
    with pytest.raises(ValidationError):
        BoxedOptions(missing_unit="sometimes")


@pytest.mark.parametrize(
    "gold", [r"x\equiv 5\pmod{12}", r"n\equiv 3\pmod 4", r"n \equiv 1, 3 \pmod{8}", r"x\in\{1,2\}", "0.\\dot{3}", "10{:}30"]
)
def test_a_gold_answer_of_a_named_kind_can_be_scored(gold):
    assert BoxedReward(BoxedOptions()).check({"gt_answer": gold}) is None
