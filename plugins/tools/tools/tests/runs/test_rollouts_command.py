"""``rlcore rollouts``: which rows it finds, how it shows them, and that nothing a model wrote reaches a terminal raw."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from rlcore_plugin_tools.run_record import RunRecord
from rlcore_plugin_tools.runs.rollout_cursor import RolloutCursor
from rlcore_plugin_tools.runs.rollout_rows import RolloutFilter, RolloutSource

from rlcore.testing import RunTester
from tests.written_runs import HOSTILE, a_rollout, an_answer, write_run

RAW = set("\x1b\x07\x9b\x7f\r\x00\u202e\ud800\u2028")
ROWS = {
    1: [
        a_rollout(0, text="it is 3"),
        a_rollout(1, text="it is\n4", reward=0.0, outcome="wrong", reason="not 3", parsed="4", advantage=-0.5),
        a_rollout(0, prompt_id="train:2", text="Nothing", reward=-0.5, outcome="malformed", masked=True, advantage=None),
    ],
    2: [
        a_rollout(0, step=2, version=1, text="", reward=None, outcome="timeout", parts={"correct": None}),
        a_rollout(1, step=2, version=1, text="GOLD", parts={}, turn_rewards=[0.5, 1.0]),
    ],
    10: [a_rollout(0, step=10, text="last", reward=0.25)],
}


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    tester = RunTester(tmp_path, in_process=True).with_only("rlcore-plugin-tools")
    answers = {"aime": {0: [an_answer(1, 0.0)], 2: [an_answer(1, 1.0), an_answer(2, 0.0)]}}
    write_run(tmp_path / "runs" / "p" / "20260101-120000-aaaaaa", rollouts=ROWS, answers=answers)
    return tester


def rows(tester: RunTester, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tester.run("rollouts", "runs/p", *words, "--json").assert_ok().lines]


def texts(tester: RunTester, *words: str) -> list[str]:
    return [row["text"] for row in rows(tester, *words)]


def test_json_is_every_row_as_it_was_written_in_the_order_of_the_steps(tester: RunTester) -> None:
    assert rows(tester) == [row for of_step in ROWS.values() for row in of_step]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--step", "2"), ["", "GOLD"]),
        (("--min-reward", "0.25"), ["it is 3", "GOLD", "last"]),
        (("--max-reward", "0"), ["it is\n4", "Nothing"]),
        (("--min-reward", "-0.5", "--max-reward", "0.25"), ["it is\n4", "Nothing", "last"]),
        (("--min-reward", "-inf"), ["it is 3", "it is\n4", "Nothing", "GOLD", "last"]),
        (("--outcome", "timeout"), [""]),
        (("--prompt", "train:2"), ["Nothing"]),
        (("--search", "nothing"), ["Nothing"]),
        (("--search", "NOT 3"), ["it is\n4"]),
        (("--search", "1 + 2"), ["it is 3", "it is\n4", "Nothing", "", "GOLD", "last"]),
        (("--limit", "2"), ["it is 3", "it is\n4"]),
        (("-n", "2"), ["it is 3", "it is\n4"]),
        (("--outcome", "ok", "--limit", "2"), ["it is 3", "GOLD"]),
    ],
)
def test_filters(tester: RunTester, words: tuple[str, ...], found: list[str]) -> None:
    assert texts(tester, *words) == found


def test_answers_to_a_held_out_task_have_the_same_names(tester: RunTester) -> None:
    found = rows(tester, "--eval", "aime", "--prompt", "test:1")
    assert [(row["step"], row["task"], row["text"], row["accuracy"], row["length"]) for row in found] == [
        (0, "aime", "answer 1", 0.0, 3),
        (2, "aime", "answer 1", 1.0, 3),
    ]
    assert [row["prompt_id"] for row in rows(tester, "--eval", "aime", "--step", "2")] == ["test:1", "test:2"]


def test_in_words(tester: RunTester) -> None:
    text = tester.run("rollouts", "runs/p", "--step", "1").assert_ok().stdout
    first, second, third = text.split("── ")[1:]
    assert first.splitlines() == [
        "step 1, prompt train:1, completion 0",
        "user",
        "    1 + 2?",
        "answer (4 tokens, stop, version 0, temperature 1.000)",
        "    it is 3",
        "gold          3",
        "parsed        3",
        "reward        1.000 = correct 1.000, format 0   accuracy 1.000   format right",
        "outcome       ok",
        "advantage     +0.500",
        "",
    ]
    assert "    it is\n    4\n" in second
    assert "outcome       wrong: not 3" in second
    assert "advantage     – (its group was filtered out)" in third
    said = tester.run("rollouts", "runs/p", "--step", "2").assert_ok().stdout
    assert "    (empty)" in said
    assert "turn rewards  [0.5, 1.0]" in said


CHAT = {
    "turns": [
        {"role": "assistant", "content": "a<r>1</r>", "policy": True, "tokens": 1, "segment": 0, "inserted": [[1, 9]]},
        {"role": "tool", "name": "add", "content": "\n".join(map(str, range(30))), "policy": False},
        {
            "role": "assistant",
            "content": "",
            "policy": True,
            "tokens": 4,
            "segment": 1,
            "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "user", "content": "so\x1b[31m?", "policy": False},
        {"role": "assistant", "name": "black", "content": "no", "policy": False},
        {"role": "assistant", "content": "", "policy": True, "tokens": 0, "segment": 1},
    ],
    "turn_rewards": [0.5, 0.0, 1],
    "branches": [[1, 2.0], [1, -1]],
    "extra": {"calls": 2.0, "won": True, "share": 0.25},
}


def test_a_conversation_in_words(tester: RunTester, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "q" / "20260101-120000-aaaaaa", rollouts={1: [a_rollout(0, text="", **CHAT), a_rollout(1)]})
    text = tester.run("rollouts", "runs/q", "-n", "1").assert_ok().stdout
    assert text.splitlines()[3:] == [
        "conversation (4 tokens, stop, version 0, temperature 1.000); the policy wrote the lines with a bar, and they train",
        "─ branch 1 of 2, reward 2.000",
        "assistant (1 token, reward 0.500)",
        "  │ a",
        "    <r>1</r>",
        "─ branch 2 of 2, reward -1.000",
        "tool add",
        *(f"    {number}" for number in range(20)),
        "    … 10 more lines; --json has them",
        "assistant (4 tokens, reward 0)",
        '  │ → add {"a": 1}',
        "user",
        "    so\\x1b[31m?",
        "assistant black (does not train)",
        "    no",
        "assistant (0 tokens, reward 1.000)",
        "  │ (empty)",
        "gold          3",
        "parsed        3",
        "reward        1.000 = correct 1.000, format 0   accuracy 1.000   format right",
        "outcome       ok",
        "advantage     +0.500",
        "turn rewards  [0.5, 0.0, 1]",
        "extra         calls 2, won true, share 0.250",
    ]
    for words in ("<r>1", "29", '"a": 1', "ADD"):
        found = [json.loads(line) for line in tester.run("rollouts", "runs/q", "--search", words, "--json").assert_ok().lines]
        assert [row["index"] for row in found] == [0], words


def test_a_pipe_gets_twenty_and_the_number_of_all(tester: RunTester, tmp_path: Path) -> None:
    many = {1: [a_rollout(number, text=f"answer {number}") for number in range(30)]}
    write_run(tmp_path / "runs" / "q" / "20260101-120000-aaaaaa", rollouts=many)
    done = tester.run("rollouts", "runs/q").assert_ok()
    assert (done.stdout.count("── step"), done.stderr.strip()) == (20, "20 of 30 rollouts; -n 30 prints all, --json one per line")
    some = tester.run("rollouts", "runs/q", "-n", "25").assert_ok()
    assert (some.stdout.count("── step"), some.stderr) == (25, "")
    assert len(tester.run("rollouts", "runs/q", "--json").assert_ok().lines) == 30


def test_a_log_of_an_older_run_without_prompts_is_shown(tester: RunTester, tmp_path: Path) -> None:
    write_run(tmp_path / "old", rollouts={1: [{"prompt_id": "train:1", "index": 0, "text": "x", "reward": 0.5}]})
    assert tester.run("rollouts", "old").assert_ok().lines[:3] == ["── step 1, prompt train:1, completion 0", "answer ()", "    x"]


def test_nothing_found_is_said_aside(tester: RunTester) -> None:
    done = tester.run("rollouts", "runs/p", "--search", "nowhere").assert_ok()
    assert (done.stdout, done.stderr) == ("", "no rollout matches\n")


@pytest.mark.parametrize("words", [(), ("--json",), ("--eval", "aime"), ("--eval", "aime", "--json")], ids=" ".join)
def test_hostile_text_reaches_no_terminal_raw(tester: RunTester, tmp_path: Path, words: tuple[str, ...]) -> None:
    names = ("prompt_id", "gold", "text", "finish", "parsed", "reason", "kind")
    row = a_rollout(0, **dict.fromkeys(names, HOSTILE), prompt=[{"role": HOSTILE, "content": HOSTILE}], parts={HOSTILE: 1.0})
    row |= {"reward": HOSTILE, "advantage": HOSTILE, "outcome": HOSTILE, "length": HOSTILE, "version": HOSTILE, "turns": [HOSTILE]}
    answer = an_answer(1, 0.0, prompt_id=HOSTILE, prompt=HOSTILE, prediction=HOSTILE, gold={HOSTILE: HOSTILE}, reason=HOSTILE)
    write_run(tmp_path / "bad", rollouts={1: [row]}, answers={"aime": {1: [answer]}})
    text = tester.run("rollouts", "bad", *words).assert_ok().stdout
    assert not set(text) & RAW
    assert "evil" in text
    if "--json" in words:
        assert json.loads(text)["text"] == HOSTILE
    else:
        assert "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\x7f\\x0d\\x00\\u202eevil\\ud800\\u2028end" in text


def test_parquet_keeps_what_is_nested(tester: RunTester, tmp_path: Path) -> None:
    done = tester.run("rollouts", "runs/p", "--parquet", "rows.parquet").assert_ok()
    assert done.stdout == "6 rollouts in rows.parquet\n"
    assert done.written == (Path("rows.parquet"),)
    found = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    expected = [row for of_step in ROWS.values() for row in of_step]
    for row, original in zip(found, expected, strict=True):
        assert dict(row.pop("parts") or []) == original["parts"]
        turns, other, task = row.pop("turn_rewards"), row.pop("other"), row.pop("task")
        assert (json.loads(turns) if turns else None, other, task, row.pop("turns")) == (original.get("turn_rewards"), None, None, None)
        assert row == {name: value for name, value in original.items() if name not in ("parts", "turn_rewards")}


def test_parquet_of_a_filter_of_an_evaluation_and_of_odd_rows(tester: RunTester, tmp_path: Path) -> None:
    assert tester.run("rollouts", "runs/p", "--eval", "aime", "--step", "2", "--parquet", "e.parquet", "--json").assert_ok().json == {
        "parquet": "e.parquet",
        "rows": 2,
    }
    assert parquet.read_table(tmp_path / "e.parquet").column("task").to_pylist() == ["aime", "aime"]
    tester.run("rollouts", "runs/p", "--search", "nowhere", "--parquet", "none.parquet").assert_ok()
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0
    odd = a_rollout(0, text=HOSTILE, gold=["3", 4], parts={"a": "no number"}, prompt="plain", reward="high", extra={"x": 1}, masked=2)
    write_run(tmp_path / "odd", rollouts={1: [odd]})
    tester.run("rollouts", "odd", "--parquet", "odd.parquet").assert_ok()
    (row,) = parquet.read_table(tmp_path / "odd.parquet").to_pylist()
    assert row["text"] == HOSTILE.replace("\ud800", "?")
    assert (json.loads(row["gold"]), row["parts"], row["reward"], row["masked"]) == (["3", 4], [("a", None)], None, None)
    assert row["prompt"] == [{"role": None, "content": "plain"}]
    assert json.loads(row["other"]) == {"extra": {"x": 1}}


def test_many_rows_are_written_in_several_batches(tester: RunTester, tmp_path: Path) -> None:
    write_run(tmp_path / "many", rollouts={step: [a_rollout(number, step=step) for number in range(1500)] for step in range(1, 5)})
    tester.run("rollouts", "many", "--parquet", "many.parquet").assert_ok()
    file = parquet.ParquetFile(tmp_path / "many.parquet")
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (6000, 2)


def test_without_pyarrow_one_sentence_says_what_to_type(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    tester.run("rollouts", "runs/p", "--parquet", "x.parquet").assert_refused("needs the package pyarrow", "pip install pyarrow")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runs/p", "--step", "3"), "has no rollouts of step 3; it has those of 1, 2, 10"),
        (("runs/p", "--eval", "amie"), "no answers to a task amie, did you mean 'aime'"),
        (("runs/p", "--eval", "aime", "--step", "1"), "has no answers to aime of step 1; it has those of 0, 2"),
        (("runs/p", "--outcome", "wrog"), "did you mean 'wrong'"),
        (("runs/p", "--limit", "0"), "at least 1"),
        (("runs/p", "--parquet", "no/x.parquet"), "there is no folder no"),
        (("runs/p", "--parquet", "runs"), "this is a folder"),
        (("runs/p", "--parquet", "pipe"), "this is not a regular file"),
        (("runs",), "neither a run folder nor a project"),
        (("empty",), "has no rollouts"),
    ],
)
def test_refusals(tester: RunTester, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    write_run(tmp_path / "empty")
    os.mkfifo(tmp_path / "pipe")
    tester.run("rollouts", *words).assert_refused(said)
    assert (tmp_path / "pipe").is_fifo()


def test_a_damaged_file_is_one_sentence(tester: RunTester, tmp_path: Path) -> None:
    run = write_run(tmp_path / "bad", rollouts={1: [a_rollout(0)] * 50})
    file = run / "rollouts" / "step-1.jsonl.gz"
    whole = file.read_bytes()
    for damaged in (whole[:-20], whole[:40] + b"\xff" * 20 + whole[60:], b"no gzip"):
        file.write_bytes(damaged)
        done = tester.run("rollouts", "bad")
        assert done.exit_code == 2
        assert "step-1.jsonl.gz" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


class CountedSource(RolloutSource):
    """Says which steps were read."""

    def __init__(self, record: RunRecord, steps: list[int]) -> None:
        super().__init__(record, steps)
        self.read: list[int] = []

    def of(self, step: int) -> Iterator[dict[str, Any]]:
        self.read.append(step)
        return super().of(step)


def test_no_update_is_read_before_it_is_needed(tester: RunTester, tmp_path: Path) -> None:
    source = CountedSource(RunRecord(tmp_path / "runs" / "p" / "20260101-120000-aaaaaa"), [1, 2, 10])
    assert next(source.matching(RolloutFilter()))["text"] == "it is 3"
    assert source.read == [1]
    reel = RolloutCursor(source, RolloutFilter())
    assert (reel.at(2) or {})["text"] == "Nothing"
    assert source.read == [1, 1]
    assert (reel.at(5) or {})["text"] == "last"
    assert (reel.at(6), reel.known, reel.whole) == (None, 6, True)
    assert (reel.at(0) or {})["text"] == "it is 3"
    assert source.read == [1, 1, 2, 10, 1]
    assert reel.find("gold", 0) == 4
    assert reel.find("gold", 5) is None


def test_bounds_of_the_reward_hold_for_numbers_only() -> None:
    taken = RolloutFilter(min_reward=-math.inf)
    assert taken.takes({"reward": 0})
    assert not any(taken.takes(row) for row in ({"reward": None}, {"reward": "1"}, {}))
