"""Answers that are nearly right, and dumps: what is made of which gold, and which rewards an audit finds by them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest
from rlcore_plugin_tools.score.adversarial_cases import corrupted_cases
from rlcore_plugin_tools.score.auditing import Finding, Material, audit_reward
from rlcore_plugin_tools.score.near_misses import dumps_of, near_misses, query_dump
from rlcore_plugin_tools.score.scorer import Scorer

from rlcore.api import AuditCase, RewardSpec
from rlcore.api.judging import RewardEntry

Function = Callable[[Any], float]


@pytest.fixture(autouse=True, scope="module")
def by_value() -> Iterator[None]:
    """The functions of this module travel to the workers, which cannot import it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def made(gold: str) -> dict[str, tuple[str, bool | None]]:
    return {miss.name: (miss.answer, miss.expected) for miss in near_misses(gold)}


def test_a_whole_number_is_missed_by_one_a_digit_a_sign_and_a_share() -> None:
    found = made("137")
    wrong = {name: answer for name, (answer, expected) in found.items() if expected is False}
    assert wrong == {
        "one more": "138",
        "one less": "136",
        "a half more": "137.5",
        "other sign": "-137",
        "ten times": "1370",
        "first digit is another": "637",
        "two digits swapped": "317",
        "a digit too few": "37",
        "a tenth more": "150.7",
    }
    assert found["in percent"] == ("137%", None)
    assert found["with a unit"] == ("137 kg", None)


@pytest.mark.parametrize(
    "gold", ["0", "7", "-7", "10", "100", "101", "11", "3.14", "-0.5", "999999999999999", "\\frac{1}{2}", "-3/4", "0/5", "1/1"]
)
def test_nothing_that_must_be_refused_is_the_answer_itself(gold: str) -> None:
    def value(text: str) -> float:
        over, _, under = text.replace("\\frac{", "").replace("}{", "/").replace("}", "").partition("/")
        return float(over) / float(under or 1)

    wrong = [miss for miss in near_misses(gold) if miss.expected is False]
    assert len(wrong) >= 1
    assert [miss for miss in wrong if value(miss.answer) == value(gold)] == []
    assert len({miss.name for miss in near_misses(gold)}) == len(list(near_misses(gold)))


@pytest.mark.parametrize(
    ("gold", "name", "answer", "expected"),
    [
        ("3.14", "one more", "4.14", False),
        ("3.14", "one more in the last place", "3.15", None),
        ("3.14", "rounded", "3", None),
        ("\\frac{3}{4}", "numerator one more", "\\frac{4}{4}", False),
        ("\\frac{3}{4}", "upside down", "\\frac{4}{3}", False),
        ("-3/4", "other sign", "3/4", False),
        ("5 cm", "another unit", "5 km", False),
        ("5 cm", "its unit left out", "5", None),
        ("12\\text{ m}", "another unit", "12\\text{ km}", False),
        ("(1, 2)", "other order", "(2, 1)", False),
        ("(1, 2, 3)", "one missing", "(1, 2)", False),
        ("B", "another choice", "C", False),
        ("false", "another choice", "true", False),
    ],
)
def test_other_answers_are_missed_in_ways_of_their_own(gold: str, name: str, answer: str, expected: bool | None) -> None:
    assert made(gold)[name] == (answer, expected)


def test_an_answer_without_a_shape_is_not_missed_narrowly() -> None:
    assert made("x + 1") == {}
    assert made("(1, 1)") == {}, "a list that is the same backwards"


def test_dumps_hold_the_right_one_among_others() -> None:
    dumps = {dump.name: dump.answer for dump in dumps_of("3")}
    assert dumps == {
        "every number up to it": "-5 -4 -3 -2 -1 0 1 2 3 4 5 6 7 8",
        "the answer or others": "3 or 1 or 0 or -1 or 2",
        "SELECT *": "SELECT *",
    }
    assert "every number up to it" not in {dump.name for dump in dumps_of("100000")}
    assert next(dump.answer for dump in dumps_of("B")) == "A, B, C, D, E"


@pytest.mark.parametrize(
    ("text", "dump"),
    [
        ("```sql\nSELECT name FROM people WHERE age > 3;\n```", ("```sql\nSELECT * FROM people;\n```", False)),
        ("select count(*) from t", ("SELECT * FROM t", False)),
        ("select a, b from t", ("SELECT * FROM t", None)),
        ("SELECT * FROM t WHERE a = 1", None),
        ("We select one from each.", ("We SELECT * FROM each.", None)),
        ("\\boxed{3}", None),
    ],
)
def test_a_query_is_dumped_whole(text: str, dump: tuple[str, bool | None] | None) -> None:
    assert query_dump(text) == dump


def findings(reward: Function, gold: str) -> set[str]:
    honest = AuditCase(name="honest", columns={"level": "4", "gt_answer": gold}, text=f"so <{gold}>", accept=True)
    cases = tuple(
        ("generic", case)
        for case in [honest, *corrupted_cases(honest)]
        if case.name.startswith(("honest", "near", "dump")) and len(case.text) < 9999
    )
    entry = RewardEntry(name="probe", spec=RewardSpec(name="probe", target="a:b", summary=""), payload=cloudpickle.dumps(reward))
    with Scorer([entry], workers=1) as scorer:
        tried = list(audit_reward(scorer, Material(cases=cases)))
    return {one.case.name for one in tried if one.finding is Finding.FALSE_ACCEPT}


def tolerant(item: Any) -> float:
    """Right is what lies within 1 of the answer."""
    import re

    found = re.fullmatch(r"so <([-\d.]+)>", item.text)
    return float(found is not None and abs(float(found[1]) - float(item.columns["gt_answer"])) <= 1)


def rounding(item: Any) -> float:
    """Right is what is the answer once it is cut to a whole number."""
    import re

    found = re.fullmatch(r"so <([-\d.]+)>", item.text)
    return float(found is not None and int(float(found[1])) == int(item.columns["gt_answer"]))


def blind_to_signs(item: Any) -> float:
    """Right is the answer, with or without a minus."""
    return float(item.text.replace("-", "") == f"so <{item.columns['gt_answer']}>")


def holding(item: Any) -> float:
    """Right is what holds the answer."""
    return float(item.columns["gt_answer"] in item.text)


def exact(item: Any) -> float:
    """Right is the answer."""
    return float(item.text == f"so <{item.columns['gt_answer']}>")


@pytest.mark.parametrize(
    ("reward", "gold", "found"),
    [
        (tolerant, "41", {"near miss: one more", "near miss: one less", "near miss: a half more"}),
        (tolerant, "2.5", {"near miss: one more", "near miss: one less", "near miss: a half more"}),
        (rounding, "41", {"near miss: a half more"}),
        (blind_to_signs, "41", {"near miss: other sign"}),
        (exact, "41", set()),
        (exact, "(1, 2)", set()),
    ],
)
def test_an_audit_finds_a_reward_that_tolerates(reward: Function, gold: str, found: set[str]) -> None:
    assert findings(reward, gold) == found


def test_an_audit_finds_a_reward_that_looks_whether_the_answer_is_in_there() -> None:
    assert {"dump: every number up to it", "dump: the answer or others", "near miss: ten times"} <= findings(holding, "41")
