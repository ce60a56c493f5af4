"""``rlcore score --resume``: a result file that was broken off goes on, and ends as if it had not been."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rlcore_plugin_tools.score.scorer import Scorer

from rlcore.testing import RunTester

ROW = {"messages": {"role": "user", "content": "say a"}, "gt_answer": "a"}
COMPLETIONS = ["a", "b", ["a", "b", "a"], "a", None, ["b", "a"], "b"]
ARGV = ("score", "samples.jsonl", "--reward", "fake", "--workers", "1", "--out", "o.jsonl")


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with completions and all their verdicts."""
    folder = tmp_path_factory.mktemp("scored")
    made = RunTester(folder, in_process=True).with_fakes()
    made.write_jsonl("samples.jsonl", [{**ROW, "completion": text, "id": f"row-{n}"} for n, text in enumerate(COMPLETIONS, 1)])
    made.run(*ARGV).assert_ok()
    (folder / "o.jsonl").rename(folder / "whole.jsonl")
    return folder


@pytest.fixture
def tester(scored: Path, tmp_path: Path) -> RunTester:
    return RunTester(shutil.copytree(scored, tmp_path / "scored"), in_process=True)


def judged(tester: RunTester, name: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (tester.folder / name).read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def broken_off(tester: RunTester, content: bytes) -> None:
    """What a command leaves that was killed: these rows, and what says what is judged by what."""
    tester.write("slow.py", "")
    whole = tester.folder / "o.jsonl"
    with mock.patch.object(Scorer, "run", side_effect=KeyboardInterrupt):
        assert tester.run(*ARGV).exit_code == 130
    assert not whole.exists()
    (tester.folder / "o.jsonl.partial").write_bytes(content)


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (range(2), 2),
        ([*range(4)], 2),  # two of three completions of a row: the whole row is judged again
        ([*range(5)], 2),  # all three of them: nobody knows that no fourth is missing
        ([*range(6)], 6),
        ([0, 5, 6, 9], 4),  # Ctrl-C keeps what was judged behind a row that was not
        ([*range(10)], 10),
        ([], 0),
    ],
)
def test_rows_that_were_judged_are_not_judged_again(tester: RunTester, lines: Any, kept: int) -> None:
    whole = (tester.folder / "whole.jsonl").read_bytes().splitlines(keepends=True)
    assert len(whole) == 10
    broken_off(tester, b"".join(whole[line] for line in lines))
    done = tester.run(*ARGV, "--resume", "--json").assert_ok()
    assert judged(tester, "o.jsonl") == judged(tester, "whole.jsonl")
    said = f"--resume: {kept} completions were judged before" if kept else "--resume: there is no"
    assert said in done.stderr
    assert (done.json["rows"], done.json["outcomes"]["ok"]["count"], done.json["outcomes"]["invalid"]["count"]) == (10, 5, 1)
    assert sorted(path.name for path in tester.folder.glob("o.jsonl*")) == ["o.jsonl"]


def test_a_row_that_was_cut_short_is_judged_again(tester: RunTester) -> None:
    whole = (tester.folder / "whole.jsonl").read_bytes().splitlines(keepends=True)
    broken_off(tester, whole[0] + whole[1][:30])
    assert "1 completions were judged before" in tester.run(*ARGV, "--resume").assert_ok().stderr
    assert judged(tester, "o.jsonl") == judged(tester, "whole.jsonl")


def test_a_file_that_was_resumed_and_broken_off_again_ends_in_order(tester: RunTester) -> None:
    whole = (tester.folder / "whole.jsonl").read_bytes().splitlines(keepends=True)
    broken_off(tester, b"".join(whole[line] for line in (5, 9, 0, 1)))
    tester.run(*ARGV, "--resume").assert_ok()
    assert judged(tester, "o.jsonl") == judged(tester, "whole.jsonl")


def test_rows_that_were_judged_reach_no_reward(tester: RunTester) -> None:
    tester.write("mine.py", "def score(item):\n    open('judged', 'a').write(item.text)\n    return float(item.text == 'a')\n")
    argv = (*ARGV[:3], "./mine.py:score", *ARGV[4:])
    whole = (tester.folder / "whole.jsonl").read_bytes().splitlines(keepends=True)
    with mock.patch.object(Scorer, "run", side_effect=KeyboardInterrupt):
        assert tester.run(*argv).exit_code == 130
    (tester.folder / "o.jsonl.partial").write_bytes(b"".join(whole[:6]))
    tester.run(*argv, "--resume").assert_ok()
    assert (tester.folder / "judged").read_text() == "bab"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"argv": ("--option", "correct=2")}, "another rewards"),
        ({"file": True}, "another content"),
        ({"about": "nonsense"}, "cannot be read"),
        ({"about": "[1]"}, "cannot be read"),
        ({"argv": ("--limit", "3")}, "another limit"),
        ({"argv": ("--columns", '{"gt_answer": "gt_answer"}')}, "another columns"),
    ],
    ids=str,
)
def test_what_was_judged_otherwise_is_not_gone_on_with(tester: RunTester, change: dict[str, Any], said: str) -> None:
    broken_off(tester, (tester.folder / "whole.jsonl").read_bytes())
    if "file" in change:
        tester.write_jsonl("samples.jsonl", [{**ROW, "completion": "b"}])
    if "about" in change:
        (tester.folder / "o.jsonl.partial.json").write_text(change["about"])
    tester.run(*ARGV, "--resume", *change.get("argv", ())).assert_refused("--resume", said, "leave out --resume")
    assert (tester.folder / "o.jsonl.partial").read_bytes() == (tester.folder / "whole.jsonl").read_bytes()


def test_with_nothing_to_go_on_with_all_is_judged(tester: RunTester) -> None:
    assert "there is no o.jsonl.partial, so all rows are judged" in tester.run(*ARGV, "--resume").assert_ok().stderr
    assert judged(tester, "o.jsonl") == judged(tester, "whole.jsonl")


def test_resume_needs_a_result_file_and_one_reward(tester: RunTester) -> None:
    tester.run(*ARGV[:-2], "--resume").assert_refused("--resume", "--out FILE")
    tester.run(*ARGV, "--resume", "--against", "fake").assert_refused("--resume", "--against")


def test_the_id_of_a_row_is_echoed(tester: RunTester) -> None:
    ids = [row.get("id") for row in judged(tester, "whole.jsonl")]
    assert ids == ["row-1", "row-2", *["row-3"] * 3, "row-4", "row-5", *["row-6"] * 2, "row-7"]


@pytest.mark.parametrize("change", [('"outcome": "ok"', '"outcome": "good"'), ('"outcome"', '"x"')], ids=str)
def test_a_partial_file_that_somebody_changed_is_refused(tester: RunTester, change: tuple[str, str]) -> None:
    broken_off(tester, (tester.folder / "whole.jsonl").read_text().replace(*change).encode())
    tester.run(*ARGV, "--resume").assert_refused("--resume", "was changed", "leave out --resume")


def test_a_function_that_an_option_names_must_be_the_same(tester: RunTester) -> None:
    tester.write("mine.py", "def fn(completions, **columns):\n    return [1.0] * len(completions)\n")
    argv = (*ARGV[:3], "trl_function", "--option", f"function={tester.folder}/mine.py:fn", *ARGV[4:])
    with mock.patch.object(Scorer, "run", side_effect=KeyboardInterrupt):
        assert tester.run(*argv).exit_code == 130
    (tester.folder / "o.jsonl.partial").write_bytes((tester.folder / "whole.jsonl").read_bytes())
    tester.write("mine.py", "def fn(completions, **columns):\n    return [0.0] * len(completions)\n")
    tester.run(*argv, "--resume").assert_refused("another files", "leave out --resume")
