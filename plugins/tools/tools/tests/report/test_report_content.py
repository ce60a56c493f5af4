"""What of a run gets into the page: figures, the sample of rollouts, spreads, and runs beside each other."""

from __future__ import annotations

import gzip
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.chat_turns import chat_turns
from rlcore_plugin_tools.report.distributions import evenly, percentile, spread
from rlcore_plugin_tools.report.report_content import Bounds, ReportContent
from rlcore_plugin_tools.report.rollout_table import trimmed

from tests.synthetic_runs import SyntheticRun


def content(*roots: Path, rollouts: int = 10_000, characters: int = 6_000) -> ReportContent:
    return ReportContent(roots, Bounds(rollouts, characters))


def test_figures_are_those_of_the_files(tmp_path: Path) -> None:
    run = SyntheticRun(steps=30, trainers=2, producers=2, resumes=(12,)).write(tmp_path / "run")
    (told,) = content(run).figures()["runs"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [row for row in rows if "seconds" in row]
    assert told["steps"] == list(range(1, 31))
    assert told["series"]["reward/mean"] == [pytest.approx(row["reward/mean"], rel=1e-5) for row in updates]
    assert "loss/odd" not in told["series"]  # never a number
    assert [row["step"] for row in told["evaluations"]] == [0, 20, 30]
    assert told["manifest"]["resumes"][0]["step"] == 12
    times = told["times"]["roles"]
    assert {role: of["workers"] for role, of in times.items()} == {"trainer": 2, "producer": 2}
    assert times["trainer"]["steps"]["compute"] == [13.0] * 30
    assert times["trainer"]["total"]["compute"] == 390.0


def test_times_of_a_run_that_died_are_summed_over_its_steps(tmp_path: Path) -> None:
    run = SyntheticRun(steps=10, ends="killed", checkpoints=(4, 8)).write(tmp_path / "run")
    (run / "checkpoints" / ".step-9.partial").mkdir()  # one that was not finished
    (told,) = content(run).figures()["runs"]
    assert (told["state"], told["steps"][-1], told["checkpoints"]) == ("ended", 10, [4, 8])
    assert told["times"]["roles"]["trainer"]["total"]["compute"] == 65.0


# --- the sample ---------------------------------------------------------------------------------------------------------


def test_all_rollouts_are_there_if_there_is_room(tmp_path: Path) -> None:
    run = SyntheticRun(steps=10, groups=4).write(tmp_path / "run")
    told = content(run).rollouts()
    assert told["told"][0] | {"spreads": None} == {
        "rollouts": 320, "of_rollouts": 320, "steps_read": 10, "steps_logged": 10, "answers": 192, "of_answers": 192, "spreads": None
    }  # fmt: skip
    assert told["count"] == 512
    assert {len(column) for column in told["columns"].values()} == {512}


@pytest.mark.parametrize("most", [0, 7, 8, 50, 100, 319])
def test_a_sample_is_whole_groups_evenly_over_the_steps(tmp_path: Path, most: int) -> None:
    run = SyntheticRun(steps=10, groups=4, eval_every=99).write(tmp_path / "run")
    told = content(run, rollouts=most).rollouts()
    columns = told["columns"]
    training = [place for place in range(told["count"]) if told["sources"][columns["source"][place]] == "training"]
    assert told["told"][0]["rollouts"] == len(training) <= most
    assert told["told"][0]["of_rollouts"] == 320
    groups = Counter((columns["step"][place], columns["prompt"][place]) for place in training)
    if most >= 80:
        assert set(groups.values()) == {8}
        assert {step for step, _ in groups} == set(range(1, 11))
    elif most >= 8:
        assert 10 in {step for step, _ in groups}
    assert len(told["told"][0]["spreads"]["reward"]["steps"]) == 10  # of every rollout, whatever the sample


def test_two_runs_share_the_room_and_the_prompts(tmp_path: Path) -> None:
    runs = [SyntheticRun(steps=10, groups=4, seed=seed).write(tmp_path / str(seed)) for seed in (0, 1)]
    told = content(*runs, rollouts=320).rollouts()
    assert [part["rollouts"] for part in told["told"]] == [160, 160]
    assert len({prompt["id"] for prompt in told["prompts"]}) == len(told["prompts"])


def test_answers_of_evaluations_are_to_the_same_prompts_at_every_step(tmp_path: Path) -> None:
    run = SyntheticRun(steps=40, groups=2, eval_prompts=50).write(tmp_path / "run")
    told = content(run, rollouts=240).rollouts()
    columns = told["columns"]
    source = told["sources"].index("gsm8k")
    by_step: dict[int, set[int]] = {}
    for place in range(told["count"]):
        if columns["source"][place] == source:
            by_step.setdefault(columns["step"][place], set()).add(columns["prompt"][place])
    assert set(by_step) == {0, 20, 40}
    assert len({frozenset(prompts) for prompts in by_step.values()}) == 1
    assert (told["told"][0]["answers"], told["told"][0]["of_answers"]) == (60, 600)


def test_a_long_text_keeps_both_ends_and_says_what_is_gone() -> None:
    row = trimmed({"text": "😀" * 50 + "x" * 1000 + "\\boxed{7}"}, 100)
    assert row["text"].startswith("😀" * 50 + "x" * 10)
    assert row["text"].endswith("\\boxed{7}")
    assert len(row["text"]) == 100
    assert row["cut"] == [110, 959]  # in the units of JavaScript, of which an emoji has two


def test_a_long_conversation_is_cut_and_says_what_is_gone() -> None:
    turns = [{"role": "assistant", "content": "ab" * 400, "policy": True, "inserted": [[100, 500]]}] * 150
    chat = trimmed({"text": "", "turns": turns}, 6_000)["chat"]
    assert (len(chat), chat[50]) == (101, {"left_out": 50})
    assert [len(text) for text, _ in chat[0]["pieces"]] == [100, 200]
    assert [inserted for _, inserted in chat[0]["pieces"]] == [0, 1]
    assert chat[0]["cut"] == 500


def test_a_branch_of_several_segments_has_one_reward() -> None:
    turns = [{"role": "assistant", "content": "a", "policy": True, "segment": segment} for segment in range(4)]
    told = chat_turns({"turns": turns, "branches": [[2, 1.0], [1, -1]]})
    assert [turn.branch_reward for turn in told] == [1.0, 1.0, -1.0, None]


@pytest.mark.parametrize(
    "turns",
    [
        "text",
        [1, None, []],
        [{}],
        [{"role": 1, "content": {"a": 1}, "policy": 1, "tokens": -1, "segment": "x", "tool_calls": [1, {}, {"function": 3}]}],
        [{"role": "tool", "content": "abc", "policy": True, "inserted": [[2, 1], ["a", 2], 3, [1, 2], [0, 1], [5, 9]], "tokens": True}],
    ],
)
def test_a_conversation_of_any_form_is_read(turns: Any) -> None:
    row = {"turns": turns, "turn_rewards": {"a": 1}, "branches": [[0, 1], 2, ["a"]]}
    for turn in chat_turns(row):
        assert (turn.tokens, turn.branch, turn.reward, turn.branch_reward) == (None, None, None, None)
        assert "".join(text for text, _ in turn.pieces) in ("", "abc", '{"a": 1}')
        assert all(isinstance(text, str) for call in turn.calls for text in call)
    json.dumps(trimmed(row, 100)["chat"], allow_nan=False)


def test_rows_of_before_and_rows_without_anything_are_taken(tmp_path: Path) -> None:
    def bare(row: dict[str, Any]) -> dict[str, Any]:
        return {"prompt_id": row["prompt_id"], "text": None} if row["index"] else {}

    told = content(SyntheticRun(steps=2, groups=2, eval_every=9, edit=bare).write(tmp_path / "run")).rollouts()
    assert told["told"][0]["rollouts"] == 32
    assert told["columns"]["text"][0] == ""
    assert told["told"][0]["spreads"] == {"length": None, "reward": None}


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    """A run that went back to a checkpoint writes other rollouts for the same step."""
    run = SyntheticRun(steps=4, groups=2).write(tmp_path / "run")
    live = content(run)
    before = live.rollouts()
    assert live.rollouts() == before
    path = run / "rollouts" / "step-3.jsonl.gz"
    rows = [json.loads(line) | {"text": "after the resume"} for line in gzip.decompress(path.read_bytes()).splitlines()]
    aside = path.with_name(".aside")
    aside.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    aside.replace(path)
    (run / "rollouts" / "step-4.jsonl.gz").unlink()
    after = live.rollouts()
    assert after["columns"]["text"].count("after the resume") == 16
    assert max(after["columns"]["step"][:48]) == 3


# --- arithmetic ---------------------------------------------------------------------------------------------------------


def test_percentiles_are_those_of_the_standard_library() -> None:
    values = sorted([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0])
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    assert [percentile(values, share) for share in (25, 50, 75)] == pytest.approx(quartiles)


@pytest.mark.parametrize("values", [[0.0, 1.0, 1.0], [5.0], [3, 900, 17, 2048], [-0.5, 0.25, 0.75, 1 / 3, 0.1, 0.2, 0.3, 0.4, 0.6]])
def test_every_value_is_in_one_bin(values: list[float]) -> None:
    told = spread({1: values, 2: [], 3: values[:1]})
    assert told is not None
    assert told["steps"] == [1, 3]
    assert list(map(sum, told["counts"])) == [len(values), 1]
    width = (told["high"] - told["low"]) / len(told["counts"][0])
    assert told["low"] <= min(values) <= max(values) <= told["high"]
    assert told["counts"][0][min(len(told["counts"][0]) - 1, int((values[0] - told["low"]) / width))] > 0
    assert spread({1: []}) is None


def test_evenly_keeps_both_ends() -> None:
    assert evenly(range(10), 4) == [0, 3, 6, 9]
    assert evenly(range(3), 5) == [0, 1, 2]
    assert (evenly(range(3), 1), evenly(range(3), 0)) == ([2], [])
