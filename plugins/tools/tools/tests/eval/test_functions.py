"""``rlcore.evaluate``, ``rlcore.score`` and ``rlcore.load_run``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.run_record import RunRecord

import rlcore
from rlcore.api import ConfigError, PluginError, RewardInput, UsageError
from rlcore.testing import RunTester

ROWS = [{"prompt": letter, "answer": letter} for letter in "abcd"]


@pytest.fixture
def here(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tester.folder)
    with tester.plugins:
        yield tester.folder


def right(item: RewardInput) -> float:
    return float(item.columns["answer"] in item.text)


def evaluated(dataset: Any, **more: Any) -> Any:
    return rlcore.evaluate("model", dataset, backend="fake", max_new_tokens=2, quiet=True, **more)


def test_rows_and_files_are_evaluated_and_nothing_stays(here: Path) -> None:
    before = sorted(here.rglob("*"))
    found = evaluated(ROWS, reward="fake", eval_samples=2)
    assert list(found.accuracy) == ["heldout"]
    assert len(found.rows) == 8
    assert {row["gold"] for row in found.rows} == set("abcd")
    assert repr(found).startswith("<evaluation: heldout ")
    assert list(evaluated({"one": ROWS[:1], "held": "held.jsonl"}, reward=right).accuracy) == ["one", "held"]
    assert list(evaluated("held.jsonl", reward=right).accuracy) == ["held"]
    assert sorted(here.rglob("*")) == before


def test_a_run_brings_its_settings_and_tasks(trained: tuple[RunTester, RunRecord]) -> None:
    tester, record = trained
    with tester.plugins:
        found = rlcore.evaluate(record.root, step=2, quiet=True)
    known = next(row for row in record.evaluations() if row["step"] == 2)
    assert found.accuracy == {"letters": known["eval/letters"]}


def test_completions_are_scored_in_order(here: Path) -> None:
    rows = [{**ROWS[0], "completion": ["a", "b"]}, {**ROWS[1], "completion": "b"}, {"prompt": "c", "answer": "c"}]
    verdicts = rlcore.score(rows, reward=right)
    assert [(row["line"], row.get("completion"), row["value"]) for row in verdicts] == [
        (1, 0, 1.0),
        (1, 1, 0.0),
        (2, None, 1.0),
        (3, None, None),
    ]
    assert (verdicts[3]["outcome"], verdicts[3]["reason"]) == (
        "invalid",
        'dataset[2]: the row has no "completion"; put the text to judge there',
    )
    with pytest.raises(UsageError, match="score needs rows and a reward"):
        rlcore.score(rows)
    with pytest.raises(PluginError, match="there is no reward 'fakee', did you mean 'fake'"):
        rlcore.score(rows, reward="fakee")


def test_errors_name_arguments(here: Path) -> None:
    with pytest.raises(UsageError, match=r"^no reward is given: pass reward=…"):
        evaluated(ROWS)
    with pytest.raises(UsageError, match=r"^no held-out data is given: pass dataset=…"):
        evaluated(None, reward=right)


def test_a_run_is_loaded_as_tables(trained: tuple[RunTester, RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    _, record = trained
    run = rlcore.load_run(record.root.parent)
    assert (run.folder, run.state) == (record.root, "finished")
    assert run.summary is not None
    assert run.config["eval"]["eval_samples"] == 2
    assert list(run.metrics["step"]) == [1, 2, 3]
    assert list(run.evaluations["step"]) == [0, 1, 2, 3]
    assert len(run.answers("letters", step=3)) == 8
    assert set(run.rollouts(step=1)["step"]) == {1}
    assert repr(run).startswith(f"<run {record.root}: finished, 3 updates, reward ")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert [row["step"] for row in run.metrics] == [1, 2, 3]
    with pytest.raises(ConfigError, match="is not a run folder"):
        rlcore.load_run(record.root / "eval")
