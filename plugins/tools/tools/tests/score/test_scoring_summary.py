"""Figures of a scored file, against values computed by hand."""

from __future__ import annotations

import json

import pytest
from rlcore_plugin_tools.score.items import TextVerdict, verdict_of
from rlcore_plugin_tools.score.score_summary import ScoreSummary
from rlcore_plugin_tools.score.verdict_kinds import Answer, answer_of

from rlcore.api import Outcome, Score


def verdict(line: int, score: Score, seconds: float | None) -> TextVerdict:
    return TextVerdict(line=line, source=f"f:{line}", score=score, seconds=seconds)


def summary() -> ScoreSummary:
    made = ScoreSummary(workers=2)
    made.add(verdict(1, Score(value=3.0, accuracy=1.0), 0.1))
    made.add(verdict(2, Score(value=1.0, accuracy=0.5), 0.3))
    made.add(verdict(3, Score(value=0.0, accuracy=0.0, outcome=Outcome.WRONG), 0.2))
    made.add(verdict(4, Score.failed(Outcome.TIMEOUT, "no verdict within 1 s, twice"), 1.0))
    made.add(verdict(5, Score.failed(Outcome.INVALID, "f:5: nonsense"), None))
    made.stop()
    return made


def test_figures_of_the_whole_count_what_was_judged_only() -> None:
    figures = summary().as_json()
    assert (figures["rows"], figures["judged"], figures["workers"]) == (5, 3, 2)
    assert figures["mean_value"] == pytest.approx(4 / 3)
    assert figures["accuracy"] == pytest.approx(0.5)
    assert figures["latency_p50"] == pytest.approx(0.25)
    assert figures["slowest"] == {"line": 4, "completion": None, "seconds": 1.0}
    assert figures["invalid"] == ["f:5: nonsense"]
    assert figures["first_failure"] == "f:4: timeout: no verdict within 1 s, twice"


def test_figures_of_each_outcome() -> None:
    outcomes = summary().as_json()["outcomes"]
    assert list(outcomes) == ["ok", "wrong", "timeout", "invalid"]
    assert outcomes["ok"]["share"] == pytest.approx(0.4)
    assert (outcomes["ok"]["mean_value"], outcomes["ok"]["accuracy"]) == (2.0, 0.75)
    assert outcomes["ok"]["latency_p99"] == pytest.approx(0.298)
    assert outcomes["timeout"]["mean_value"] is None
    assert outcomes["invalid"]["latency_p50"] is None


def test_nothing_judged_has_no_figures_and_is_still_json() -> None:
    made = ScoreSummary(workers=1)
    made.add(verdict(1, Score.failed(Outcome.ERROR, "broken"), 0.1))
    figures = json.loads(json.dumps(made.as_json(), allow_nan=False))
    assert (figures["mean_value"], figures["accuracy"], figures["judged"]) == (None, None, 0)


def test_the_clock_stops() -> None:
    made = summary()
    assert made.seconds == made.seconds


def test_a_verdict_that_is_masked_is_no_value_of_zero() -> None:
    masked = Score(value=0.0, accuracy=0.0, reason="the function does not apply", in_statistics=False, in_loss=False)
    made = ScoreSummary(workers=1)
    made.add(verdict(1, masked, 0.1))
    assert (made.judged, made.all_failed, made.as_json()["mean_value"]) == (0, True, None)
    made.add(verdict(2, Score(value=3.0, accuracy=1.0), 0.1))
    figures = made.as_json()
    assert (figures["judged"], figures["masked"], figures["mean_value"], figures["accuracy"]) == (1, 1, 3.0, 1.0)
    row = verdict(1, masked, 0.1).as_row()
    assert row["value"] is None
    assert not verdict_of(row, "f").counts
    assert answer_of(masked) is Answer.FAILED
