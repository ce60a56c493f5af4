"""``rlcore runs``: which runs it finds, what it says of each, in which order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.runs.run_settings import short_names

from rlcore.testing import RunTester
from tests.written_runs import HOSTILE, an_update, write_run

NAMES = {"old": "20260101-120000-aaaaaa", "mid": "20260102-120000-bbbbbb", "new": "20260103-120000-cccccc"}
EVAL = {"eval_dataset": {"aime": "a.jsonl", "gsm": "g.jsonl"}}


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """Three runs of two projects: finished, killed after an update, and one that made none."""
    tester = RunTester(tmp_path, in_process=True).with_only("rlcore-plugin-tools")
    write_run(
        tmp_path / "runs" / "math" / NAMES["old"],
        settings={"training": {"learning_rate": 1e-5}, "eval": EVAL},
        metrics=[
            {"step": 0, "eval/aime": 0.1, "eval/gsm": 0.3},
            an_update(1, 0.25),
            an_update(2, 0.75),
            {"step": 2, "eval/aime": 0.5, "eval/gsm": 0.7, "eval/aime/low": 0.4},
        ],
    )
    write_run(
        tmp_path / "runs" / "math" / NAMES["mid"],
        settings={"training": {"learning_rate": 1e-6}, "eval": EVAL, "log": {"best_by": "min:reward/mean"}},
        metrics=[an_update(1, 0.9)],
        finished=False,
    )
    write_run(
        tmp_path / "runs" / "code" / NAMES["new"], settings={"training": {"learning_rate": 1e-5}, "run": {"max_steps": 7}}, finished=False
    )
    return tester


def listed(tester: RunTester, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tester.run("runs", *words, "--json").assert_ok().json["runs"]
    return rows


def test_every_project_the_newest_first(tester: RunTester) -> None:
    new, mid, old = listed(tester)
    assert [row["name"] for row in (new, mid, old)] == [NAMES["new"], NAMES["mid"], NAMES["old"]]
    assert [row["project"] for row in (new, mid, old)] == ["code", "math", "math"]
    assert (old["state"], old["step"], old["planned"], old["reward"], old["seconds"]) == ("finished", 2, 2, 0.75, 4.0)
    assert old["best"] == {"metric": "accuracy", "value": pytest.approx(0.6), "step": 2}
    assert (mid["state"], mid["step"], mid["best"]) == ("ended", 1, {"metric": "reward/mean", "value": 0.9, "step": 1})
    assert (new["state"], new["step"], new["planned"], new["best"], new["reward"]) == ("ended", 0, 7, None, None)


def test_only_what_differs_is_named(tester: RunTester) -> None:
    answer = tester.run("runs", "runs/math", "--json").assert_ok().json
    assert answer["differ"] == ["training.learning_rate", "log.best_by"]
    assert [row["settings"] for row in answer["runs"]] == [
        {"training.learning_rate": 1e-6, "log.best_by": "min:reward/mean"},
        {"training.learning_rate": 1e-5},
    ]
    (line,) = [line for line in tester.run("runs", "runs/math").assert_ok().lines if NAMES["mid"] in line]
    assert line.endswith("learning_rate=1e-06 best_by=min:reward/mean")


def test_one_project_and_one_run(tester: RunTester) -> None:
    assert [row["name"] for row in listed(tester, "--project", "math")] == [NAMES["mid"], NAMES["old"]]
    assert [row["name"] for row in listed(tester, "runs/code")] == [NAMES["new"]]
    assert [row["name"] for row in listed(tester, f"runs/math/{NAMES['old']}")] == [NAMES["old"]]


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("time", ["new", "mid", "old"]),
        ("name", ["old", "mid", "new"]),
        ("state", ["new", "mid", "old"]),
        ("step", ["old", "mid", "new"]),
        ("best", ["old", "mid", "new"]),  # 0.6 and -0.9, for the lowest is its best
        ("reward", ["mid", "old", "new"]),
        ("seconds", ["old", "mid", "new"]),
    ],
)
def test_order_and_limit(tester: RunTester, by: str, order: list[str]) -> None:
    assert [row["name"] for row in listed(tester, "--sort", by)] == [NAMES[name] for name in order]
    assert [row["name"] for row in listed(tester, "--sort", by, "--limit", "1")] == [NAMES[order[0]]]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("run.toml", "[run\n", "run.toml cannot be read"),
        ("run.toml", "log = 3\n", "log is not a table"),
        ("run.toml", '[run]\nmax_steps = "many"\n', "data that no run writes"),
        ("metrics.jsonl", "{broken}\n", "metrics.jsonl:1 is not JSON ("),
        ("metrics.jsonl", "7\n", "metrics.jsonl:1 is not a JSON object"),
        ("metrics.jsonl", '{"seconds": 1.0}\n', "metrics.jsonl has a line without a step"),
        ("metrics.jsonl", '{"step": 1, "seconds": "long"}\n', "data that no run writes"),
        ("summary.json", "{", "summary.json is damaged"),
        ("manifest.json", "[]", "manifest.json cannot be read"),
    ],
)
def test_a_damaged_run_is_a_row_that_says_so(tester: RunTester, tmp_path: Path, file: str, text: str, said: str) -> None:
    damaged = write_run(tmp_path / "runs" / "math" / "20260104-120000-dddddd", metrics=[an_update(1, 0.5)])
    (damaged / "run.toml").write_text("[training]\nlearning_rate = 1.0\n")  # how many updates are planned, only the manifest says
    (damaged / file).write_text(text)
    answer = tester.run("runs", "runs/math", "--json").assert_ok().json
    assert [row["state"] for row in answer["runs"]] == ["damaged", "ended", "finished"]
    assert said in answer["runs"][0]["problem"]
    assert answer["differ"] == ["training.learning_rate", "log.best_by"]
    lines = tester.run("runs").assert_ok().lines
    assert len(lines) == 5
    assert said in lines[1]
    assert [row["state"] for row in listed(tester, "--sort", "seconds")][-1] == "damaged"


def test_a_row_a_line_into_a_pipe_and_a_block_on_a_narrow_terminal(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = tester.run("runs").assert_ok().lines
    assert len(lines) == 4
    assert lines[0].split() == ["run", "state", "step", "best", "reward", "time", "differs", "in"]
    assert lines[3].split()[:9] == [f"runs/math/{NAMES['old']}", "finished", "2/2", "0.600", "@2", "accuracy", "0.750", "4.0", "s"]
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    blocks = re.sub(r"\x1b\[[0-9;]*m", "", tester.run("runs").assert_ok().stdout).splitlines()
    assert max(map(len, blocks)) <= 50
    assert f"runs/math/{NAMES['old']}" in blocks
    assert "  best        0.600 @2 accuracy" in blocks
    monkeypatch.setenv("COLUMNS", "250")
    assert len(tester.run("runs").assert_ok().lines) == 4


def test_names_of_strangers_reach_no_terminal_raw(tester: RunTester, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "math" / "20260104-120000-\x1b[31m", settings={"model": {"model": HOSTILE.replace("\ud800", "")}})
    text = tester.run("runs").assert_ok().stdout
    assert "\\x1b[31m" in text
    assert not set(text) & set("\x1b\x07\x9b\x7f\r\x00\u202e\u2028")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "there is no folder nowhere"),
        (("--project", "maht"), "no project maht, did you mean 'math'"),
        (("runs/empty",), "has no run"),
        (("--limit", "0"), "at least 1"),
        (("--sort", "bets"), "did you mean 'best'"),
    ],
)
def test_refusals(tester: RunTester, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "runs" / "empty").mkdir()
    tester.run("runs", *words).assert_refused(said)


def test_settings_are_called_by_as_many_words_as_tell_them_apart() -> None:
    paths = [
        "run.seed",
        "training.options.threads",
        "inference.options.threads",
        "rewards[0].name",
        "rewards[1].name",
        "data.dataset[0].path",
    ]
    assert [*short_names(paths).values()] == [
        "seed",
        "training.options.threads",
        "inference.options.threads",
        "rewards[0].name",
        "rewards[1].name",
        "path",
    ]


def test_a_reward_that_is_no_number_is_none(tester: RunTester, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "math" / "20260104-120000-dddddd", metrics=[{**an_update(1, 0.5), "reward/mean": "high"}])
    assert [row["reward"] for row in listed(tester, "runs/math", "--sort", "reward")] == [0.9, 0.75, None]
