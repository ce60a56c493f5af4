"""The benchmark of inference backends: it compares the tokens that it says, keeps what it measured, and its table is that of the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from benchmarks import engines, kept_cells, layouts
from benchmarks.engines_watch import Seen
from benchmarks.kept_cells import read_rows
from rlcore.api import Segment, UsageError

BEGIN, END = "<!-- bench-engines: begin -->", "<!-- bench-engines: end -->"
SHAPE = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model")
    AutoModelForCausalLM.from_config(Qwen2Config(**SHAPE, num_key_value_heads=2, initializer_range=0.3)).save_pretrained(path)
    return path


def seen(folder: Path, length: int, *, off: float, versions: list[int], temperature: float = 0.7) -> Seen:
    """A segment of four tokens whose log probabilities are those of the model, plus ``off``; its last token was forced."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = np.random.default_rng(length).integers(0, 40, length + 4)
    with torch.inference_mode():
        logits = model(input_ids=torch.from_numpy(ids)[None]).logits[0, length - 1 : -1] / temperature
    said = torch.log_softmax(logits, -1).numpy()[np.arange(4), ids[length:]]
    mask = [True, True, True, False]
    segment = Segment(context_ids=ids[:length], token_ids=ids[length:], logprobs=said + off, versions=versions, policy_mask=mask)
    return Seen(segment, temperature)


def test_only_sampled_tokens_of_the_version_are_compared_whatever_stands_beside_them(folder: Path) -> None:
    several = [
        seen(folder, 3, off=0.25, versions=[0, 0, 5, 5]),
        seen(folder, 30, off=-0.5, versions=[5, 5, 5, 5], temperature=1.3),
        seen(folder, 7, off=9.0, versions=[1, 1, 1, 5]),
    ]
    gaps = sorted(engines.gaps_of(folder, several, 5))
    assert np.allclose(gaps, [-0.25, 0.5, 0.5, 0.5], atol=1e-5)
    assert engines.gaps_of(folder, several, 7).shape == (0,)


def row(cell: str, **other: object) -> dict[str, object]:
    return {
        "cell": cell,
        "steps": 3,
        "accuracy_before": 0.44,
        "accuracy_after": 0.985,
        "seconds_per_step": 1.2345,
        "tokens_per_second": 1537,
        "outside": 0.0,
        "largest": 7.8e-6,
        "compared": 9159,
        "load": 0.5,
        "cores": 2,
        "packages": {"transformers": "5.0"},
        **other,
    }


def test_the_table_goes_between_the_marks_and_says_what_it_was_made_with() -> None:
    page = engines.BENCH.with_table(f"a\n{BEGIN}\nold\n{END}\nb\n", [row("transformers-local-0"), row("vllm-ray-2", outside=0.01)])
    assert "| local, alternating | transformers | 0.440 to 0.985 | 1.23 | 1537 | 0 | 8e-06 |" in page
    assert "| Ray, two producers, staleness 2 | vllm | 0.440 to 0.985 | 1.23 | 1537 | 1.00% | 8e-06 |" in page
    assert "3 updates each, on 2 cores; load of the machine before a run 0.5 to 0.5; transformers 5.0." in page
    assert (page.startswith("a\n"), page.endswith("\nb\n"), "old" in page) == (True, True, False)
    with pytest.raises(UsageError, match="lacks the line"):
        engines.BENCH.with_table("no marks", [row("vllm-ray-2")])


@pytest.mark.parametrize("module", [engines, layouts])
def test_the_table_of_the_page_is_that_of_the_results(module: ModuleType) -> None:
    bench = module.BENCH
    page = bench.page.read_text(encoding="utf-8")
    made = re.search(rf"`make bench-{bench.name}`: (\d+) updates each", page)
    rows = [row for row in read_rows(bench.results) if made and row["steps"] == int(made[1])]
    order = list(bench.cells)
    assert page == (bench.with_table(page, sorted(rows, key=lambda row: order.index(row["cell"]))) if made else page)
    assert made or f"Not made yet: `make bench-{bench.name}`" in page


def test_what_is_kept_is_not_measured_again_and_the_page_waits_for_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = []

    def measure(cell: str, toml: Path, steps: int) -> dict[str, object]:
        measured.append(cell)
        return row(cell, steps=steps)

    monkeypatch.setattr(engines, "measure", measure)
    monkeypatch.setattr(kept_cells, "prepare", lambda folder, seed, report: type("Assets", (), {"run_toml": folder})())
    page, results = tmp_path / "page.md", tmp_path / "kept" / "results.jsonl"
    page.write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    words = ["--steps", "3", "--results", str(results), "--page", str(page)]
    assert engines.BENCH.main([*words, "--only", "vllm-local-2", "transformers-local-2"]) == 0
    assert "|" not in page.read_text(encoding="utf-8")
    assert engines.BENCH.main(words) == 0
    assert sorted(measured) == sorted(engines.CELLS)
    backends = [line.split("|")[2].split(",")[0].strip() for line in page.read_text("utf-8").splitlines() if "staleness" in line]
    assert backends == [*engines.ENGINES] * 2
    assert engines.BENCH.main(["--steps", "4", *words[2:], "--only", "vllm-local-2"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["steps"], list(last["cells"]), len(measured)) == (4, ["vllm-local-2"], len(engines.CELLS) + 1)


@pytest.mark.full
def test_a_run_is_measured_over_versions_that_it_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.jsonl"
    assert engines.BENCH.main(["--steps", "2", "--only", "transformers-local-0", "--results", str(results)]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["cells"]["transformers-local-0"]
    assert found["versions"] == [0, 1, 2]
    assert found["compared"] > 1000
    assert (found["outside"], found["largest"] < 1e-4) == (0.0, True)
    assert [line["cell"] for line in read_rows(results)] == ["transformers-local-0"]
