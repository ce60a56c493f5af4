"""The warning of a sampler that does not compute the trainer's model: beyond which gap, on which updates, and once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlcore.config.layers import replaced
from rlcore.entry import make_plan
from rlcore.runtime.sampler_gap import SamplerGap, mean_gap_tolerance
from rlcore.testing import FakeTraining, RunTester

FRESH = {"staleness/max": 0.0, "optimizer_steps": 1.0}


def notes(tmp_path: Path, *updates: dict[str, float], coarse: str = "", **sections: Any) -> list[str]:
    """What a run says of updates with these figures; nothing of it is built. ``coarse``: a section whose backend, unlike the fakes,
    computes in bfloat16."""
    tester = RunTester(tmp_path).with_fakes()
    with tester.plugins:
        plan = make_plan(tester.fake_run(**sections))
    if coarse:
        plan = replace(plan, config=replaced(plan.config, f"{coarse}.dtype", "bfloat16"))
    said: list[str] = []
    gap = SamplerGap(plan, said.append)
    for figures in updates:
        gap.check(figures)
    return said


@pytest.mark.parametrize(("gap", "warned"), [(0.9e-3, False), (1.1e-3, True)])
def test_a_gap_beyond_rounding_is_warned_of_once(gap: float, warned: bool, tmp_path: Path) -> None:
    said = notes(tmp_path, {**FRESH, "sampler_gap": gap}, {**FRESH, "sampler_gap": gap})
    assert len(said) == warned
    assert all("warning: the sampler" in text and f"{gap:.3g} nats" in text and "0.001 is usual" in text for text in said)


@pytest.mark.parametrize("section", ["inference", "training"])
def test_a_coarse_dtype_at_either_end_allows_more(section: str, tmp_path: Path) -> None:
    allowed = mean_gap_tolerance("bfloat16")
    inside, beyond = ({**FRESH, "sampler_gap": gap} for gap in (0.9 * allowed, 1.1 * allowed))
    assert notes(tmp_path / "inside", inside, coarse=section) == []
    assert len(notes(tmp_path / "beyond", beyond, coarse=section)) == 1


@pytest.mark.parametrize(
    ("figures", "sections"),
    [
        ({"staleness/max": 1.0}, {}),
        ({"optimizer_steps": 2.0}, {}),
        ({}, {"sampling": {"top_k": 3}}),
    ],
    ids=["stale tokens", "several steps", "a cut sampler"],
)
def test_a_gap_that_is_meant_is_no_news(figures: dict[str, float], sections: dict[str, Any], tmp_path: Path) -> None:
    assert notes(tmp_path, {**FRESH, "sampler_gap": 1.0, **figures}, **sections) == []


def test_a_run_looks_at_every_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are those of the trainer: the gap of the second update is the first one beyond what is usual."""
    gaps = iter([0.0005, 0.25, 0.5])
    update = FakeTraining.update
    monkeypatch.setattr(FakeTraining, "update", lambda self, *args: {**update(self, *args), "sampler_gap": next(gaps)})
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    done = tester.run("train", tester.fake_run()).assert_ok()
    assert (done.stdout + done.stderr).count("warning: the sampler's log probabilities") == 1
    assert "differ from the trainer's by 0.25 nats" in done.stdout + done.stderr


def test_a_trainer_that_gives_no_gap_is_not_warned_of(tmp_path: Path) -> None:
    assert notes(tmp_path, FRESH) == []
