"""`make bench-weights` without its transfers: what the last line and the table say."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.weights import DEFAULT, TRANSPORTS, summary, table

RESULTS = {
    "shared": {"gbs": 6.0, "memcpy": 12.0, "publish_ms": 0.05, "first_s": 0.4},
    "object_store": {"gbs": 2.0, "memcpy": 10.0, "publish_ms": 0.06, "first_s": 0.5},
    "collective": {"gbs": 1.0, "memcpy": 11.0, "publish_ms": 0.07, "first_s": 2.0},
}


def test_the_share_is_of_the_memcpy_between_the_default_s_own_transfers() -> None:
    assert set(RESULTS) == set(TRANSPORTS)
    assert summary(RESULTS) == {"shared": 6.0, "object_store": 2.0, "collective": 1.0, "memcpy": 11.0, "share_of_memcpy": 0.5}


def test_no_share_without_the_default() -> None:
    assert "share_of_memcpy" not in summary({name: result for name, result in RESULTS.items() if name != DEFAULT})


@pytest.mark.parametrize("name", TRANSPORTS)
def test_the_table_has_a_row_for_each_transport(name: str) -> None:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table(RESULTS, 400))
    row = next(line for line in capture.get().splitlines() if name in line)
    assert f"{RESULTS[name]['gbs']:.2f}" in row
    assert f"{RESULTS[name]['gbs'] / RESULTS[name]['memcpy']:.2f}" in row
