"""`make bench-weights-paper`: the arithmetic, and the table of docs/planning.md is its output."""

from __future__ import annotations

import json

import pytest

from benchmarks.weights_paper import END, PAGE, START, Fleet, main, table, ways


def test_the_page_holds_what_the_command_prints() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(START)[2].partition(END)[0].strip() == table(Fleet())


def test_a_version_of_32_billion_weights_in_bfloat16_is_64_gb_and_a_broadcast_carries_it_once() -> None:
    assert Fleet().weights == 64.0
    by_name = {way.name.split(" ")[0].strip("`,"): way for way in ways(Fleet())}
    assert by_name["collective"].sent == 64.0
    assert by_name["object_store"].sent == 8 * 64.0
    assert by_name["one"].sent == 16 * 64.0


@pytest.mark.parametrize("change", [{"billions": 64.0}, {"network": 25.0}, {"engines": 32}])
def test_more_to_move_or_less_to_move_it_with_is_never_quicker(change: dict[str, float]) -> None:
    for before, after in zip(ways(Fleet()), ways(Fleet(**change)), strict=True):  # type: ignore[arg-type]
        assert after.whole >= before.whole
        assert after.sent >= before.sent


def test_the_last_line_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--billions", "7"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(one["whole"] >= one["stall"] for one in line.values())
