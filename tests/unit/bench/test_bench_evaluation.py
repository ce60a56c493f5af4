"""What evaluations cost, from rows that are made up."""

from __future__ import annotations

import pytest

from benchmarks.evaluation import cost_of


def update(step: int, own: float, waiting: float) -> dict[str, float]:
    times = {"time/trainer/compute": own, "time/trainer/waiting_for_data": waiting, "time/trainer/waiting_for_weights": 0.0}
    return {"step": step, "seconds": own + waiting, **times}


def test_updates_beside_an_evaluation_are_held_against_the_others() -> None:
    rows = [update(step, 1.0, 0.5) for step in range(1, 11)]
    rows += [update(11, 1.5, 2.0), update(12, 1.0, 0.5), {"step": 10, "eval/a": 0.5}, update(13, 1.0, 0.5), {"step": 13, "eval/a": 0.5}]
    found = cost_of(rows)
    assert found["beside"] == 2
    assert found["cost"] == pytest.approx(0.5 / 8.5)
    assert found["waiting"] == pytest.approx(1.5 / 14.0)
    assert cost_of([update(step, 1.0, 0.5) for step in range(1, 11)])["cost"] == 0.0
