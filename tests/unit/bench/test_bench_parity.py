"""The table of layouts: what is compared, and what breaks a bound. That layouts are equal is the suite's to show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import parity
from benchmarks.parity import differences
from benchmarks.parity_steps import Run

ONE = Run(metrics=[{"loss": 2.0, "grad_norm": 4.0}] * 2, weights={"a": np.full(4, 3.0)}, gradients={"a": np.ones(2), "b": np.full(2, 1e-6)})


def test_differences_are_relative_and_of_the_worst_step_and_tensor() -> None:
    other = replace(
        ONE,
        metrics=[{"loss": 2.0, "grad_norm": 4.0}, {"loss": 2.2, "grad_norm": 3.0}],
        weights={"a": np.array([3.0, 3.0, 3.0, 9.0])},
        gradients={"a": np.ones(2), "b": np.array([1e-6, 2e-6])},
    )
    assert differences(ONE, ONE, ONE, ONE) == dict.fromkeys(parity.BOUNDS, 0.0)
    expected = {"loss": 0.1, "grad_norm": 0.25, "weights": 1.0, "gradient_fp32": 0.5**0.5}
    assert differences(other, ONE, other, ONE) == pytest.approx(expected)


@pytest.mark.parametrize(("value", "code"), [(1e-10, 0), (2e-9, 1), (float("nan"), 1)])
def test_a_bound_that_is_broken_is_an_exit_code(
    value: float, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "training.md"
    page.write_text(f"# Page\n<!-- parity: {parity.MADE_BY} -->\nold\n<!-- /parity -->\nafter\n")
    monkeypatch.setattr(parity, "PAGE", page)
    monkeypatch.setattr(parity, "measure", lambda layouts, model: {"data 2": {**dict.fromkeys(parity.BOUNDS, 0.0), "weights": value}})
    monkeypatch.setattr("sys.argv", ["parity", "--write"])
    assert parity.main() == code
    assert capsys.readouterr().out.splitlines()[-1].startswith('{"parity": {"data 2": {"loss": 0.0')
    assert page.read_text().startswith("# Page\n")
    assert f"| {value:.1e} |" in page.read_text()
    assert "old" not in page.read_text()
