"""rlcore beside TRL on one device: the ways, what a run that breaks leaves, the folder that both sides get. TRL is a script here."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from benchmarks.gpu import peers
from benchmarks.gpu.models import TINY
from benchmarks.gpu.setting import Outcome, Setting
from benchmarks.peers import on_device, runs
from benchmarks.peers.on_device import RLCORE, TRL, WAYS, compare, device_folder, device_work, main, summary
from benchmarks.peers.rlcore_side import settings
from benchmarks.peers.runs import RunBroke, one_run
from benchmarks.peers.work import Work
from rlcore.entry import make_plan

FIGURES = {"seconds": 2.0, "cpu_seconds": 1.0, "peak_bytes": 2**31, "reward": 0.5, "mean_length": 8.0}
BOTH = {**FIGURES, "split": {"time/producers/compute": 1.0, "generation": 0.5}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return device_folder(tmp_path_factory.mktemp("device") / "0.6b", "0.6b", "cpu", tiny=True)


def script(path: Path, does: str) -> Path:
    """A Python of an environment that does this."""
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return path


def test_a_prompt_has_as_many_tokens_as_the_work_says_and_every_token_is_a_word(folder: Path) -> None:
    work, tokenizer = Work.read(folder), AutoTokenizer.from_pretrained(folder / "model")
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    lengths = {len(tokenizer.apply_chat_template([row["messages"]], add_generation_prompt=True, return_dict=False)) for row in rows}
    assert lengths == {work.prompt_tokens}
    assert tokenizer.decode([3, TINY.vocabulary - 1]) == f"w3 w{TINY.vocabulary - 1}"
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, len(tokenizer)) == (0, 1, TINY.vocabulary)


@pytest.mark.full
def test_the_side_of_rlcore_runs_on_the_folder(folder: Path) -> None:
    changes = {"training": {"tokens_per_forward": 64}}
    figures = one_run(folder, ("rlcore", "1", "0", json.dumps(changes)), Path(sys.executable), 300)
    assert figures["steps"] == 1
    assert figures["split"]["time/producers/compute"] > 0


def test_with_vllm_nothing_but_the_engine_lacks(folder: Path) -> None:
    values: dict[str, Any] = settings(device_work("0.6b", "cuda", tiny=True), folder, folder / "runs", 1, 0)
    values["rewards"] = [{"name": "boxed"}]  # the benchmark's own is a plugin of the run
    for section, changes in WAYS["vllm"][RLCORE].items():
        values[section] |= changes
    plan = make_plan(values)
    assert [lack.path for lack in plan.missing] in ([], ["inference.name"])
    assert (plan.config.run.placement, plan.config.inference.name, plan.config.inference.dtype) == ("colocated", "vllm", "bfloat16")
    assert plan.config.inference.options["engine"] == {"gpu_memory_utilization": WAYS["vllm"][TRL]["vllm_gpu_memory_utilization"]}


def test_a_run_gets_one_card_and_its_last_line_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    peer = script(
        tmp_path / "python",
        'echo first; echo "{\\"card\\": $CUDA_VISIBLE_DEVICES, \\"threads\\": $OMP_NUM_THREADS, \\"words\\": \\"$*\\"}"',
    )
    made = one_run(tmp_path, ("trl", "2", "{}"), peer)
    assert made == {"card": 3, "threads": 2, "words": f"{runs._SIDE} {tmp_path} 2 {{}}"}


def test_a_run_that_breaks_or_takes_too_long_says_how(tmp_path: Path) -> None:
    with pytest.raises(RunBroke, match=r"ended with 3:\n(.|\n)*no such kernel"):
        one_run(tmp_path, ("trl", "1"), script(tmp_path / "python", "echo no such kernel >&2; exit 3"))
    with pytest.raises(RunBroke, match="took longer than 0 s"):
        one_run(tmp_path, ("trl", "1"), script(tmp_path / "python", "exec sleep 60"), 0.2)


def test_rollouts_of_a_forward_are_halved_until_the_card_holds_them(folder: Path, tmp_path: Path) -> None:
    work = Work.read(folder)
    held = f'grep -q "forward_rollouts.: 1," "$2/work.json" && echo \'{json.dumps(BOTH)}\' || {{ echo CUDA out of memory. >&2; exit 1; }}'
    peer = script(tmp_path / "python", held)
    figures = on_device.fitting_run(folder, work, TRL, {}, peer, 60)
    assert figures["rows"] == 1
    peer = script(tmp_path / "python", "echo CUDA out of memory. >&2; exit 1")
    with pytest.raises(RunBroke, match="out of memory"):
        on_device.fitting_run(folder, work, TRL, {}, peer, 60)
    work.write(folder)


def test_a_way_that_breaks_is_a_row_with_its_reason_and_the_others_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def run(where: Path, way: tuple[str, ...], peer: Path, limit: float) -> dict[str, Any]:
        asked.append(way)
        if "continuous" in way[-1]:
            raise RunBroke("python ended with 1:\nTraceback\nImportError: too old\n")
        return BOTH

    monkeypatch.setattr(on_device, "one_run", run)
    reports: list[int] = []
    tried = compare(folder, "0.6b", "transformers", Path("peer"), 60, report=lambda found: reports.append(len(found)))
    assert list(tried) == list(WAYS["transformers"])
    assert reports == [1, 2, 3, 4, 5]
    assert tried["TRL, continuous batching"] == {"error": "ImportError: too old"}
    assert [way[0] for way in asked] == ["rlcore", *["trl"] * 4]
    assert json.loads(asked[-1][-1])["transformers_continuous_batching_config"] == {"max_memory_percent": 0.01}
    assert (tried[RLCORE]["generation_seconds"], tried[TRL]["generation_seconds"]) == (1.0, 0.5)
    assert tried[RLCORE]["generated_tokens_per_second"] == 4 * 8.0
    late = compare(folder, "0.6b", "transformers", Path("peer"), 60, time.monotonic() + 20)
    assert {row["error"] for row in late.values()} == {"not begun: out of time"}


def test_the_heavy_tail_is_for_ways_that_take_a_stop_rule() -> None:
    work = device_work("heavy-tailed", "cuda", tiny=False)
    assert (work.sigma, work.new_tokens) == (1.0, 1024)
    assert list(on_device.ways_of("transformers", work)) == [RLCORE, TRL, "TRL, bfloat16 weights"]
    whole = on_device.ways_of("transformers", device_work("0.6b", "cuda", tiny=False))
    assert whole["TRL, continuous batching"] == {"weights": "bfloat16", "use_transformers_continuous_batching": True}


def test_the_sentence_names_the_fastest_way_and_the_one_that_computes_the_same() -> None:
    slow, fast = {"step_seconds": 6.0}, {"step_seconds": 4.0}
    assert summary({RLCORE: {"step_seconds": 2.0}, TRL: slow, "TRL, fast": fast, "TRL, odd": {"error": "no"}}) == (
        True,
        "a step 2.00 s with rlcore, 4.00 s with TRL, fast, its fastest: 2.00x; 6.00 s where it computes as rlcore does: 3.00x",
    )
    assert summary({RLCORE: {"error": "no"}, TRL: slow}) == (False, "rlcore does not work: no")
    assert summary({RLCORE: fast, TRL: {"error": "never"}}) == (False, "TRL does not work: never")


@pytest.mark.parametrize(("error", "code"), [(None, 0), ("no", 1)])
def test_by_itself_the_last_line_is_one_json_object(
    error: str | None, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any) -> dict[str, Any]:
        if error:
            raise RunBroke(error)
        return BOTH

    monkeypatch.setattr(on_device, "one_run", run)
    assert main(["--device", "cpu", "--shape", "0.6b"]) == code
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["device"], found["engine"], found["failed"]) == ("cpu", "transformers", ["0.6b"] if error else [])
    assert found["shapes"]["0.6b"]["works"] is not bool(error)


def test_the_part_is_not_run_where_trl_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "trl" else object())
    outcome = peers.side_by_side(Setting(device="cpu", tiny=True, scratch=tmp_path, keep=tmp_path), "0.6b")
    assert (outcome.status, outcome.said, outcome.rows) == ("not run", "not run: trl not installed", [])


def test_the_part_reports_each_way_and_shows_those_that_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(where: Path, way: tuple[str, ...], *_: Any) -> dict[str, Any]:
        if "static" in way[-1]:
            raise RunBroke("no")
        return {**BOTH, "seconds": 1.0 if "weights" in way[-1] else 3.0}

    monkeypatch.setattr(peers, "find_spec", lambda name: object())
    monkeypatch.setattr(on_device, "one_run", run)
    reports: list[Outcome] = []
    setting = Setting(device="cpu", tiny=True, scratch=tmp_path, keep=tmp_path, report=reports.append)
    outcome = peers.side_by_side(setting, "0.6b")
    assert outcome.status == "done"
    assert [row["who"] for row in outcome.rows] == [RLCORE, "TRL, bfloat16 weights", "TRL, continuous batching", TRL]
    assert outcome.figures["TRL, bfloat16 weights, static cache"] == {"error": "no"}
    assert [len(report.figures) for report in reports] == [1, 2, 3, 4, 5]
