"""The tables of trainer colossalai: what is compared, what breaks a bound. What its ranks compute is `make bench-parity`'s to show."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.colossal_parity import BOUNDS, broken, differences, memory_table, parity_table
from benchmarks.parity_steps import Run

START = {"a": np.zeros(4)}
EXACT = Run(metrics=[{"loss": 2.0, "grad_norm": 4.0}] * 2, weights={"a": np.full(4, 3.0)})
GOOD = {"loss": 0.0, "grad_norm": 0.0, "way": 0.0}


def test_weights_are_measured_by_the_way_that_they_went() -> None:
    mine = Run(metrics=[{"loss": 2.0, "grad_norm": 4.0}, {"loss": 2.2, "grad_norm": 3.0}], weights={"a": np.array([3.0, 3.0, 3.0, 6.0])})
    assert differences(EXACT, EXACT, START) == GOOD
    assert differences(mine, EXACT, START) == pytest.approx({"loss": 0.1, "grad_norm": 0.25, "way": 0.5})


@pytest.mark.parametrize("dtype", list(BOUNDS))
def test_a_bound_is_that_of_the_precision(dtype: str) -> None:
    for key, bound in BOUNDS[dtype].items():
        figures = {"low": bound, "high": 1.01 * bound, "nan": float("nan")}
        assert broken({f"{name}/{dtype}": {**GOOD, key: figure} for name, figure in figures.items()}) == [
            f"high/{dtype}: {key}",
            f"nan/{dtype}: {key}",
        ]


def test_memory_is_that_of_the_rows_that_have_it() -> None:
    held = {"weights": 4.0, "gradients": 2.0, "masters": 2.0, "moments": 4.0}
    rows = {"torch, one process/float32": GOOD, "zero 2, data 2/float32": {**GOOD, **held}}
    assert memory_table(rows).splitlines()[2:] == ["| zero 2, data 2 | float32 | 4.0 | 2.0 | 2.0 | 4.0 | 12.0 |"]
    assert "| torch, one process | float32 | 0.0e+00 | 0.0e+00 | 0.0e+00 |" in parity_table(rows)
