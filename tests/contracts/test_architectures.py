"""Each architecture of docs/how_to/inference.md is served with the numbers of a plain forward pass, or refused in the table's words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks import architectures
from benchmarks.architectures import ARCHITECTURES, BEGIN, END, PAGE, TOLERANCE, Architecture, Outcome, measure

BY_NAME = {one.name: one for one in ARCHITECTURES}
QUICK = ("qwen2, window", "mistral", "gemma3_text", "qwen3_moe", "phi3, longrope", "falcon, alibi", "mamba")
"""One of each way to be served or refused."""


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def check(name: str) -> None:
    outcome = measure(BY_NAME[name])
    assert architectures.as_said(BY_NAME[name], outcome), outcome
    assert "\n" not in outcome.refusal
    assert not outcome.refusal or "; " in outcome.refusal, "it does not say what to do"


@pytest.mark.parametrize("name", QUICK)
def test_it_is_served_as_a_forward_pass_computes_or_refused_in_one_sentence(name: str) -> None:
    check(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in QUICK])
def test_every_other_one_is_served_as_a_forward_pass_computes_or_refused_in_one_sentence(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", ["mistral", "qwen2, window"])
def test_another_window_would_be_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens, held against a model whose window is one token wider."""
    plain = architectures._plain
    monkeypatch.setattr(architectures, "_plain", lambda folder, one: plain(folder, one, sliding_window=architectures.WINDOW + 1))
    assert measure(BY_NAME[name]).before > 100 * TOLERANCE


def test_the_table_of_the_page_has_each_of_them_and_its_verdict() -> None:
    lines = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")][2:]
    assert [(name, special) for name, special, *_ in cells] == [(one.name, one.special) for one in ARCHITECTURES]
    assert len(cells) >= 12
    for name, _, verdict, before, after, _ in cells:
        if BY_NAME[name].refused:
            assert verdict.startswith("refused: ")
            assert BY_NAME[name].refused in verdict
        else:
            assert verdict.startswith("served")
            assert max(float(before), float(after)) < TOLERANCE


@pytest.mark.parametrize(
    ("refused", "outcome", "said"),
    [
        ("", Outcome(before=1e-6, after=1e-6), True),
        ("", Outcome(before=1e-6, after=1e-3), False),
        ("", Outcome(refusal="no"), False),
        ("window", Outcome(before=1e-6), False),
        ("window", Outcome(refusal="it has a window"), True),
        ("window", Outcome(refusal="no"), False),
    ],
)
def test_a_row_is_wrong_unless_it_is_as_the_list_says(refused: str, outcome: Outcome, said: bool) -> None:
    assert architectures.as_said(Architecture(name="a", kind="a", special="", refused=refused), outcome) is said
