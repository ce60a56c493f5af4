"""The page "Supported and not supported" says what the backends declare, what is registered and what ran on a GPU."""

from __future__ import annotations

import pytest

from tools import supported_page
from tools.supported_page import NEVER, on_gpu

TEXT = supported_page.PAGE.read_text(encoding="utf-8")


def test_the_page_is_fresh() -> None:
    assert supported_page.with_tables(TEXT) == TEXT, "docs/reference/supported.md is stale: type .venv/bin/python -m tools.supported_page"


def test_a_page_without_the_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks"):
        supported_page.with_tables("no marks")


def test_a_gpu_counts_only_with_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_gpu("torch", {"cpu", "cuda"}) == "yes"
    assert on_gpu("torch", {"cpu", "cuda"}, "zero") == NEVER
    assert on_gpu("torch", {"cpu"}) == "no"
    assert on_gpu("vllm", {"cpu", "cuda"}) == NEVER
    monkeypatch.setattr(supported_page, "ran_on_gpu", set)
    assert on_gpu("torch", {"cpu", "cuda"}) == NEVER


@pytest.mark.parametrize("word", ["vision", "MoE", "LoRA", "thinking", "curricula", "tools", "`vllm`", "pipeline", "`parquet`", "Slurm"])
def test_the_page_has_what_people_ask_for(word: str) -> None:
    assert word.lower() in TEXT.lower()
