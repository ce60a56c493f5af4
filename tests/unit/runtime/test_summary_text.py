"""A summary as text and as a table: short, complete, and harmless."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rlcore.runtime.progress import Summary

HOSTILE = "<script>alert(1)</script>&\x1b[31m\n\n"


def summary(**fields: Any) -> Summary:
    made: dict[str, Any] = {
        "run": Path("runs/x y"),
        "steps": 40,
        "train_seconds": 5.25,
        "tokens_per_second": 1234.4,
        "accuracy_before": 0.25,
        "accuracy_after": 0.5,
        "reward_last": 0.75,
        "ledger": {"trained": 3},
        "time": {},
        "peak_memory_bytes": 1,
        "checkpoint": Path("runs/x y/checkpoints/step-40"),
        "train_on": "--max-steps 80",
        **fields,
    }
    return Summary(**made)


def test_the_figures_and_the_next_command_are_there() -> None:
    assert repr(summary(remarks=("look",))).splitlines() == [
        "run                 done",
        "training            40 updates, 5.2 s, 1234 tokens/s",
        "held-out accuracy   0.250 before, 0.500 after",
        "last reward         0.750",
        "run folder          runs/x y",
        "checkpoint          runs/x y/checkpoints/step-40",
        "to train further    rlcore.train(resume='runs/x y', max_steps=80)",
        "note                look",
    ]


def test_what_there_is_not_has_no_line() -> None:
    text = repr(summary(accuracy_before=None, reward_last=None, checkpoint=None, interrupted=True))
    assert [line.split("  ")[0] for line in text.splitlines()] == ["run", "training", "run folder", "checkpoint"]
    assert "stopped early, and saved" in text
    assert "to resume           rlcore.train(resume='runs/x y')\n" in f"{summary(interrupted=True)}\n"


@pytest.mark.parametrize("name", ["x", "x" * 200, "x" * 2000])
@pytest.mark.parametrize("remarks", [0, 1, 2, 3, 50])
def test_it_is_ten_lines_and_900_characters_at_most(name: str, remarks: int) -> None:
    made = summary(run=Path(name), checkpoint=Path(name), remarks=("long " * 200,) * remarks, switched_off={"tracker": "broken"})
    assert len(repr(made)) <= 900
    assert len(repr(made).splitlines()) <= 10
    assert remarks + 1 <= 2 or len(name) > 1 or f"and {remarks - 1} more" in repr(made)


def test_what_is_in_it_is_neither_a_tag_nor_a_control() -> None:
    made = summary(run=Path(HOSTILE), remarks=(HOSTILE,), switched_off={HOSTILE: HOSTILE}, train_on=HOSTILE)
    html = made._repr_html_()
    assert {one.tag for one in ElementTree.fromstring(html).iter()} == {"table", "tr", "th", "td"}
    assert "&lt;script&gt;" in html
    assert all(line.isprintable() for line in repr(made).splitlines())
    assert len(repr(made).splitlines()) <= 10
