"""``rlcore score`` as it is typed: what it prints, writes and returns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.score import scorer
from rlcore_plugin_tools.score.items import TextVerdict
from rlcore_plugin_tools.score.scorer import Scorer

from rlcore.testing import RunTester

ROW = {"messages": {"role": "user", "content": "say a"}, "gt_answer": "a"}
BROKEN = "def score(item):\n    raise KeyError('nope')\n"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write_jsonl("samples.jsonl", [{**ROW, "completion": "a"}, {**ROW, "completion": ["b", "!raise"]}, ROW])
    return made


def rows(tester: RunTester, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tester.folder / name).read_text(encoding="utf-8").splitlines()]


def test_a_file_is_scored_row_by_row(tester: RunTester) -> None:
    done = tester.run(
        "score", "samples.jsonl", "--reward", "Fake", "--option", "correct=2", "--out", "scores.jsonl", "--workers", "2"
    ).assert_ok()
    scores = rows(tester, "scores.jsonl")
    assert [(row["line"], row.get("completion"), row["value"], row["outcome"]) for row in scores] == [
        (1, None, 2.0, "ok"),
        (2, 0, 0.0, "wrong"),
        (2, 1, None, "error"),
        (3, None, None, "invalid"),
    ]
    assert scores[3]["reason"] == 'samples.jsonl:3: the row has no "completion"; put the text to judge there'
    for said in (
        "4 completions",
        "2 workers",
        "invalid: samples.jsonl:3",
        "first failure: samples.jsonl:2: error",
        "RuntimeError",
        "scores.jsonl",
    ):
        assert said in done.stdout
    assert done.written == (Path("scores.jsonl"),)


def test_the_summary_as_json_is_one_object(tester: RunTester) -> None:
    done = tester.run("score", "samples.jsonl", "--reward", "fake", "--json").assert_ok()
    assert len(done.lines) == 1
    assert {name: figures["count"] for name, figures in done.json["outcomes"].items()} == {"ok": 1, "wrong": 1, "error": 1, "invalid": 1}
    assert done.written == ()


def test_strict_refuses_the_file_and_writes_nothing(tester: RunTester) -> None:
    done = tester.run("score", "samples.jsonl", "--reward", "fake", "--strict", "--out", "scores.jsonl")
    done.assert_refused("samples.jsonl:3", 'no "completion"')


def test_strict_looks_at_every_row_before_the_first_is_judged(tester: RunTester) -> None:
    tester.write("mine.py", "def score(item):\n    open('judged', 'w').close()\n    return 1.0\n")
    tester.run("score", "samples.jsonl", "--reward", "./mine.py:score", "--strict").assert_refused("samples.jsonl:3")


def test_strict_passes_a_sound_file(tester: RunTester) -> None:
    tester.run("score", "samples.jsonl", "--reward", "fake", "--strict", "--limit", "2", "--out", "scores.jsonl").assert_ok()
    assert len(rows(tester, "scores.jsonl")) == 3


def test_a_dry_run_reads_and_judges_nothing(tester: RunTester) -> None:
    tester.write_jsonl("deadly.jsonl", [{**ROW, "completion": "!hang"}, ROW])
    done = tester.run("score", "deadly.jsonl", "--reward", "fake", "--dry-run", "--json", "--out", "scores.jsonl").assert_ok()
    assert (done.json["rows"], done.json["completions"], done.json["invalid"]) == (2, 1, 1)
    assert done.json["rewards"][0]["options"] == {"correct": 1.0}
    assert done.written == ()
    assert "2 rows, 1 completions, 1 invalid" in tester.run("score", "deadly.jsonl", "--reward", "fake", "--dry-run").stdout


def test_the_rewards_of_a_run_file(tester: RunTester) -> None:
    tester.write_toml("r.toml", {"rewards": [{"name": "fake", "weight": 0.5}]})
    done = tester.run("score", "samples.jsonl", "--config", "r.toml", "--limit", "1", "--json").assert_ok()
    assert done.json["mean_value"] == 0.5


def test_a_reward_that_fails_on_every_row_is_exit_code_1(tester: RunTester) -> None:
    tester.write("mine.py", BROKEN)
    done = tester.run("score", "samples.jsonl", "--reward", "./mine.py:score", "--limit", "2")
    assert done.exit_code == 1
    assert "the reward failed on every row" in done.stderr
    assert "KeyError" in done.stderr
    assert "mine.py" in done.stdout
    assert "first failure" not in done.stdout  # the error says it


def test_a_death_has_no_latency(tester: RunTester) -> None:
    tester.write("mine.py", "import os\n\ndef score(item):\n    os._exit(7)\n")
    done = tester.run("score", "samples.jsonl", "--reward", "./mine.py:score", "--limit", "1", "--workers", "1", "--out", "o.jsonl")
    assert done.exit_code == 1
    assert next(line.split() for line in done.stdout.splitlines() if line.startswith("infra")) == ["infra", "1", "100.0%", *"––––"]
    assert rows(tester, "o.jsonl")[0]["seconds"] is None


def test_an_option_is_shown_as_it_was_typed(tester: RunTester) -> None:
    argv = ("--reward", "fake", "--option", "correct=much")
    tester.run("score", "samples.jsonl", *argv).assert_refused("--option correct=much: correct")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--reward", "fake", "--reward", "other"], "--config run.toml"),
        (["--reward", "fake", "--limit", "0"], "--limit 0"),
        (["--reward", "fake", "--workers", "none"], "--workers none"),
        (["--reward", "fake", "--deadline", "0"], "--deadline 0"),
        (["--reward", "fake", "--out", "samples.jsonl"], "overwrite"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(tester: RunTester, argv: list[str], said: str) -> None:
    tester.run("score", "samples.jsonl", *argv).assert_refused(said)


def test_ctrl_c_keeps_what_was_judged(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, calls = Scorer._ready, itertools.count()

    def impatient(judging: Scorer) -> Iterator[TextVerdict]:
        if next(calls) > 40:
            raise KeyboardInterrupt
        return ready(judging)

    monkeypatch.setattr(scorer, "_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(Scorer, "_ready", impatient)
    texts = ["a", "a", "!hang", *["a"] * 40]  # behind the one that hangs others are judged, which wait for their turn
    tester.write_jsonl("long.jsonl", [{**ROW, "completion": text} for text in texts])
    done = tester.run("score", "long.jsonl", "--reward", "fake", "--deadline", "600", "--workers", "2", "--out", "o.jsonl")
    assert done.exit_code == 130
    lines = [row["line"] for row in rows(tester, "o.jsonl.partial")]
    assert f"{len(lines)} completions were judged; judged rows are in" in done.stderr
    assert lines == sorted(set(lines) - {3})
    assert lines[-1] > 3
    assert done.written == (Path("o.jsonl.partial"), Path("o.jsonl.partial.json"))


def test_a_file_without_a_name_is_refused(tester: RunTester) -> None:
    tester.run("score", "", "--reward", "fake").assert_refused("is empty", "samples.jsonl")
    tester.run("audit", "--data", "", "--reward", "fake").assert_refused("is empty", "samples.jsonl")


def test_a_function_that_applies_to_nothing_judges_nothing(tester: RunTester) -> None:
    tester.write(
        "mine.py", "def fn(prompts, completions, **columns):\n    return [None if c[-1]['content'] == 'a' else 1.0 for c in completions]\n"
    )
    tester.write_jsonl("two.jsonl", [{**ROW, "completion": "a"}, {**ROW, "completion": "b"}])
    argv = ("two.jsonl", "--reward", "trl_function", "--option", f"function={tester.folder}/mine.py:fn")
    done = tester.run("score", *argv, "--out", "o.jsonl").assert_ok()
    assert [row["value"] for row in rows(tester, "o.jsonl")] == [None, 1.0]
    assert "masked: 1, which have no value" in done.stdout
    none = tester.run("score", *argv, "--limit", "1")
    assert none.exit_code == 1
    assert "the function does not apply" in none.stderr


def test_a_strangers_rows_do_not_steer_the_terminal(tester: RunTester) -> None:
    hostile = "a\x1b]0;owned\x07\x9b2J"
    tester.write("bad.jsonl", f'{{"{hostile}": 1, "{hostile}": 2}}\n'.replace("\x1b", "\\u001b").replace("\x07", "\\u0007"))
    for more in (("--dry-run",), ()):
        done = tester.run("score", "bad.jsonl", "--reward", "fake", *more)
        assert r'the key "a\x1b]0;owned\x07\x9b2J" occurs twice' in done.stdout
        assert all(line.isprintable() for line in [*done.stdout.splitlines(), *done.stderr.splitlines()])
