"""Which cases an audit is made of, and what it finds in rewards with known holes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
from rlcore_plugin_tools.score.adversarial_cases import corrupted_cases, golds_of, plain_cases
from rlcore_plugin_tools.score.auditing import Answer, Finding, Material, Tried, audit_reward, cases_of, fails_without_row, material_of
from rlcore_plugin_tools.score.items import RowsToJudge
from rlcore_plugin_tools.score.scorer import Scorer

from rlcore.api import AuditCase, DataError, FinishReason, Outcome, PluginError, RewardSpec, Score
from rlcore.api.commands import Registry, RunConfig
from rlcore.api.judging import RewardEntry


def rows_to_judge(file: Path) -> RowsToJudge:
    return RowsToJudge(path=str(file), registry=Registry.discover(), config=RunConfig())


HONEST = AuditCase(name="honest", columns={"gold": "41", "id": "9"}, text="I think <41>", accept=True)
SPEC = RewardSpec(name="probe", target="nowhere:at_all", summary="", requires=("gold",), audit="audited_probe:cases")


@pytest.fixture
def own_cases() -> Iterator[list[Any]]:
    """What the plugin ``audited_probe`` returns."""
    cases: list[Any] = [HONEST, AuditCase(name="liar", columns={"gold": "41"}, text="<42>", accept=False)]
    module = ModuleType("audited_probe")
    module.cases = lambda: cases  # type: ignore[attr-defined]
    sys.modules["audited_probe"] = module
    yield cases
    del sys.modules["audited_probe"]


def careful(item):
    """Right is one number in angle brackets, at the end."""
    import re

    from rlcore.api import FinishReason, Outcome, Score

    found = re.fullmatch(r"[^<>]{0,5000}<([^<>]*)>", item.text)
    right = found is not None and item.finish is FinishReason.STOP and found[1] == item.columns["gold"]
    return Score(value=float(right), accuracy=float(right), outcome=Outcome.OK if right else Outcome.WRONG)


def careless(item):
    """Right is a text that holds the answer anywhere, or claims to; a long one is its death."""
    import time

    if len(item.text) > 5_000_000:
        time.sleep(600)
    if "\x00" in item.text:
        raise ValueError("NUL")
    return float(item.columns["gold"] in item.text or "correct" in item.text)


def tried(function: Any, material: Material, deadline: float = 20.0) -> list[Tried]:
    spec = RewardSpec(name="probe", target="unpackaged:target", summary="")
    entry = RewardEntry(name="probe", spec=spec, deadline=deadline, payload=cloudpickle.dumps(function))
    with Scorer([entry], workers=2) as scorer:
        return list(audit_reward(scorer, material))


@pytest.fixture(autouse=True, scope="module")
def by_value() -> Iterator[None]:
    """The functions of this module travel to the workers, which cannot import it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_a_careful_reward_has_no_finding(own_cases: list[Any]) -> None:
    found = tried(careful, material_of(SPEC))
    assert [(one.case.name, one.verdict.score) for one in found if one.finding] == []
    assert {one.answer for one in found} == {Answer.ACCEPTED, Answer.REFUSED}
    assert len(found) > 70


def test_a_careless_reward_is_found_out(own_cases: list[Any]) -> None:
    found = {one.case.name: one.finding for one in tried(careless, material_of(SPEC), deadline=0.5) if one.finding}
    assert found["every candidate"] is Finding.FALSE_ACCEPT
    assert found["claims"] is Finding.FALSE_ACCEPT
    assert found["NUL"] is Finding.NO_VERDICT
    assert found["10 MB of one letter"] is Finding.NO_VERDICT
    assert "honest" not in found
    assert "liar" not in found


def test_a_reward_that_refuses_what_is_right_is_found_out(own_cases: list[Any]) -> None:
    found = [one.finding for one in tried(lambda item: 0.0, Material(cases=(("plugin", HONEST),)))]
    assert found == [Finding.FALSE_REJECT]


@pytest.mark.parametrize(("accept", "finding"), [(True, Finding.UNUSABLE), (False, None), (None, None)])
def test_a_row_that_cannot_be_judged_is_a_finding_where_it_should_be_right(accept: bool | None, finding: Finding | None) -> None:
    case = replace(HONEST, accept=accept)
    (one,) = tried(lambda item: Score.failed(Outcome.INVALID, "gold"), Material(cases=(("plugin", case),)))
    assert (one.answer, one.finding) == (Answer.INVALID, finding)


@pytest.mark.parametrize(("accept", "finding"), [(True, Finding.NO_VERDICT), (False, None), (None, None)])
def test_a_text_that_is_masked_earns_nothing_and_a_right_one_should(accept: bool | None, finding: Finding | None) -> None:
    case = replace(HONEST, accept=accept)
    (one,) = tried(lambda item: Score(value=0.0, in_statistics=False, in_loss=False), Material(cases=(("plugin", case),)))
    assert (one.answer, one.finding, one.as_json()["value"]) == (Answer.FAILED, finding, None)


def test_cases_of_the_plugin_come_first_and_keep_their_verdicts(own_cases: list[Any]) -> None:
    material = material_of(SPEC)
    assert [case for origin, case in material.cases if origin == "plugin"] == own_cases
    assert [origin for origin, _ in material.cases[:3]] == ["plugin", "plugin", "generic"]
    assert material.note == ""


@pytest.mark.parametrize(
    ("audit", "said"),
    [
        ("nowhere_at_all:cases", "cannot be imported"),
        ("audited_probe:absent", "does not exist"),
        ("audited_probe:cases", "must return a list of AuditCase"),
    ],
)
def test_a_plugin_whose_cases_are_none_is_refused(audit: str, said: str, own_cases: list[Any]) -> None:
    own_cases.append("text")
    with pytest.raises(PluginError, match=said):
        cases_of(replace(SPEC, audit=audit))


def test_rows_of_a_file_take_the_place_of_cases(tmp_path: Path) -> None:
    row = {"messages": {"role": "user", "content": "what is 40 + 1?"}, "gold": "41"}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    bare = material_of(replace(SPEC, audit=""), rows_to_judge(file))
    file.write_text("nonsense\n" + json.dumps({**row, "completion": "<41>"}) + "\n", encoding="utf-8")
    right = material_of(replace(SPEC, audit=""), rows_to_judge(file))
    assert "no right completion is known" in bare.note
    assert not [case for _, case in bare.cases if case.accept]
    assert [case.text for _, case in right.cases if case.accept] == ["<41>"]
    assert "what is 40 + 1?" in [case.text for _, case in bare.cases]
    assert len(right.cases) > len(bare.cases)


def test_every_completion_of_a_list_must_be_right(tmp_path: Path) -> None:
    row = {"messages": {"role": "user", "content": "what is 40 + 1?"}, "gold": "41", "completion": ["<41>", "so <41>", "<4>"]}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    material = material_of(replace(SPEC, audit=""), rows_to_judge(file))
    assert [(case.name, case.text) for _, case in material.cases if case.accept] == [
        ("row 1, completion 1", "<41>"),
        ("row 1, completion 2", "so <41>"),
        ("row 1, completion 3", "<4>"),
    ]
    names = [case.name for _, case in material.cases]
    assert names.count("format without its answer") == 1  # one of the list is spoiled
    findings = {one.case.name for one in tried(careful, material) if one.finding is Finding.FALSE_REJECT}
    assert findings == {"row 1, completion 3"}


def test_a_plugin_that_returns_no_case_is_said_to_have_none(own_cases: list[Any]) -> None:
    own_cases.clear()
    assert "its audit audited_probe:cases returned none that is right)" in material_of(replace(SPEC, requires=())).note
    with pytest.raises(DataError, match="comes with no cases") as caught:
        material_of(SPEC)
    assert "its audit audited_probe:cases returned none that is right)" in str(caught.value)


def test_without_any_row_a_reward_that_needs_one_is_not_audited(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="name rows with --data"):
        material_of(replace(SPEC, audit=""))
    file = tmp_path / "rows.jsonl"
    file.write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"rows.jsonl:1"):
        material_of(replace(SPEC, audit=""), rows_to_judge(file))


def test_without_any_row_only_texts_are_tried() -> None:
    material = material_of(replace(SPEC, audit="", requires=()))
    assert material.rowless
    assert "--data" in material.note
    assert all(not case.columns for _, case in material.cases)
    entry = RewardEntry(name="p", spec=replace(SPEC, requires=()), payload=cloudpickle.dumps(careless))
    with Scorer([entry], workers=1) as scorer:
        assert "gold" in fails_without_row(scorer)


# --- the texts themselves ----------------------------------------------------------------------------------------------


def test_the_row_s_id_is_no_answer() -> None:
    assert golds_of({"id": "9", "gold": " 41 ", "level": 3, "flag": True, "tests": {"inputs": []}, "long": "x" * 1000}) == ["41", "3"]


def test_a_text_that_holds_the_answer_by_chance_may_be_accepted() -> None:
    file_row = replace(SPEC, audit="chance_probe:cases")
    module = ModuleType("chance_probe")
    module.cases = lambda: [replace(HONEST, columns={"gold": "full marks"}, text="<full marks>")]  # type: ignore[attr-defined]
    sys.modules["chance_probe"] = module
    try:
        claims = next(case for _, case in material_of(file_row).cases if case.name == "claims")
    finally:
        del sys.modules["chance_probe"]
    assert "full marks" in claims.text
    assert claims.accept is None


def test_what_must_be_refused_holds_no_answer() -> None:
    listed = {"every candidate", "every candidate as one answer"}
    for case in [*plain_cases(HONEST, "answer in <>"), *corrupted_cases(HONEST)]:
        if case.accept is False and case.name not in listed:
            assert "<41>" not in case.text, case.name
        assert case.columns == HONEST.columns


def test_every_candidate_hides_the_right_one_in_the_middle() -> None:
    text = next(case.text for case in corrupted_cases(HONEST) if case.name == "every candidate")
    lines = text.splitlines()
    assert len(lines) == 41
    assert lines[20] == HONEST.text
    assert HONEST.text not in (lines[0], lines[-1])


def test_the_names_of_one_row_s_cases_differ() -> None:
    names = [case.name for case in [*plain_cases(HONEST, "a"), *corrupted_cases(HONEST)]]
    assert len(set(names)) == len(names)
    assert any(case.finish is FinishReason.LENGTH for case in corrupted_cases(HONEST))


def test_an_honest_text_without_its_gold_is_cut_in_half() -> None:
    program = replace(HONEST, text="print(input())")
    assert "honest, half of it" in [case.name for case in corrupted_cases(program)]
    assert all(case.accept is None for case in corrupted_cases(program))
