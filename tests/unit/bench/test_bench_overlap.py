"""The benchmark of overlap: its pace is what its docstring says, and its figures are those of the rows that it reads."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.overlap import BATCH, MEAN_LENGTH, Setting, _figures, _mean_longest
from rlcore.testing import LengthKind, Lengths


def setting(updates: int) -> Setting:
    return Setting(folder=Path(), runtime="local", updates=updates, curve_updates=1, warmup=10)


def test_the_batches_that_count_wait_as_long_as_the_distribution_says() -> None:
    assert _mean_longest(setting(5), LengthKind.CONSTANT) == MEAN_LENGTH
    expected = Lengths(kind=LengthKind.LOGNORMAL, mean=MEAN_LENGTH).mean_longest_of(BATCH)
    deviation = 130.0  # of the longest of 16, in tokens
    assert abs(_mean_longest(setting(400), LengthKind.LOGNORMAL) - expected) < 4 * deviation / math.sqrt(400)


def test_figures_are_shares_of_the_rows_seconds() -> None:
    row = {
        "seconds": 0.25,
        "response_tokens": 1024.0,
        "staleness/mean": 3.0,
        "cut_share": 0.25,
        "time/trainer/compute": 0.2,
        "time/trainer/waiting_for_data": 0.04,
        "time/trainer/other": 0.01,
        "time/producers/compute": 0.2,
        "time/producers/wasted": 0.1,
        "time/producers/back_pressure": 0.2,
    }
    assert _figures([row, row], seconds_per_token=0.2 / 64) == pytest.approx(
        {
            "throughput": 4.0,
            "trainer_idle": 0.2,
            "producer_idle": 0.4,
            "slots_busy": 0.4,
            "staleness": 3.0,
            "tokens": 1024.0,
            "cut_share": 0.25,
        }
    )
