"""A run that is killed before an event goes on to the same bits; with producers beside the trainer, each prompt is trained once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.matrix import BESIDE, CrashMatrix

SHARES = 4
EVERY = 4
"""Of the events; `make crash-matrix` takes all of them."""


@pytest.mark.full
@pytest.mark.parametrize("share", range(SHARES))
def test_killed_before_an_event_it_goes_on_to_the_same_bits(tmp_path: Path, share: int) -> None:
    matrix = CrashMatrix(tmp_path)
    with matrix.warmed():
        expected, events = matrix.whole()
        numbers = list(range(1 + share, len(events) + 1, EVERY))[share::SHARES]
        assert len(numbers) >= 15
        assert [point for point in matrix.points(numbers, expected) if point.differs] == []


@pytest.mark.full
def test_killed_twice_it_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """The second life is killed while it puts the folder back."""
    matrix = CrashMatrix(tmp_path)
    with matrix.warmed():
        expected, events = matrix.whole()
        points = matrix.points([len(events) // 2, len(events) - 6], expected, twice=lambda number: 8)
        assert [point for point in points if point.differs] == []


@pytest.mark.full
@pytest.mark.timeout(600)
def test_with_producers_beside_the_trainer_each_prompt_is_trained_once(tmp_path: Path) -> None:
    matrix = CrashMatrix(tmp_path, in_order=False, **BESIDE)
    with matrix.warmed():
        expected, events = matrix.whole()
        points = matrix.points([len(events) // 3, 2 * len(events) // 3], expected)
        assert [point for point in points if point.differs] == []
