"""`make bench-weights` without its transfers: what the last line and the table say."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.weights import DEFAULT, TRANSPORTS, summary, table

SIZE = 4e8
RESULTS = {
    "shared": {"end_to_end": 0.1, "stall": 0.025, "memcpy": 0.04, "fresh": 0.25, "hash": 0.02, "peak": 2.0, "size": SIZE},
    "object_store": {"end_to_end": 0.2, "stall": 0.025, "memcpy": 0.05, "fresh": 0.25, "hash": 0.02, "peak": 2.5, "size": SIZE},
    "collective": {"end_to_end": 0.4, "stall": 0.025, "memcpy": 0.04, "fresh": 0.25, "hash": 0.02, "peak": 2.0, "size": SIZE},
}


def test_each_share_is_of_the_memcpy_between_that_transport_s_own_transfers() -> None:
    assert set(RESULTS) == set(TRANSPORTS)
    line = summary(RESULTS, step=1.0)
    assert [line[f"{name}_gbs"] for name in TRANSPORTS] == [4.0, 2.0, 1.0]
    assert [line[f"{name}_share_of_memcpy"] for name in TRANSPORTS] == [0.4, 0.25, 0.1]
    assert (line["memcpy_gbs"], line["fresh_gbs"], line["hash_gbs"]) == (10.0, 1.6, 20.0)


def test_the_stall_is_a_share_of_the_step_that_it_makes_longer() -> None:
    line = summary(RESULTS, step=0.975)
    assert line["stall_share_of_step"] == 0.025
    assert line["stall_share_of_step_fresh_copy"] == round(0.25 / 1.225, 4)
    assert line["peak_copies"] == 2.0


def test_no_stall_without_the_default() -> None:
    line = summary({name: result for name, result in RESULTS.items() if name != DEFAULT}, step=1.0)
    assert "stall_share_of_step" not in line


@pytest.mark.parametrize("name", TRANSPORTS)
def test_the_table_has_a_row_for_each_transport(name: str) -> None:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table(RESULTS, 400))
    row = next(line for line in capture.get().splitlines() if name in line)
    assert f"{RESULTS[name]['end_to_end'] * 1e3:.1f}" in row
    assert f"{RESULTS[name]['memcpy'] / RESULTS[name]['end_to_end']:.2f}" in row
