"""``rlcore eval --resume``: what is finished is kept, and the result is that of an evaluation without the interruption."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from contextlib import chdir
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_tools.eval.identity import _named_files
from rlcore_plugin_tools.eval.part_file import FinishedPrompt, PartFile, finished_prompts

from rlcore.testing import RunOutcome, RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.eval_rows import rows_of, tasks_of, without_seconds

WORDS = ("model", "run.toml", "-d", "held.jsonl", "more.jsonl", "--eval-samples", "2", "--out", "rows.jsonl")
SLOW = """
import time
from rlcore.api import Score

def score(item):
    time.sleep(0.2)
    return Score(value=float(len(item.text)), accuracy=float(item.text[:1] == "a"))
"""


@pytest.fixture
def complete(tester: RunTester) -> tuple[RunTester, RunOutcome]:
    """A complete evaluation of two tasks of four and two prompts."""
    tester.fake_data("more.jsonl", "ef")
    return tester, tester.run("eval", *WORDS, "--json").assert_ok()


def interrupt(folder: Path, prompts: int, torn: bytes = b"") -> None:
    """Leave the files as a kill would after so many prompts, in the midst of a line if ``torn``."""
    told = json.loads((folder / "rows.jsonl.eval.json").read_text())
    rows = groupby(rows_of(folder / "rows.jsonl"), key=lambda row: (row.pop("task"), row["prompt_index"]))
    lines = [FinishedPrompt(task, number, list(of_prompt), 0, 1.0 + number).as_line() for (task, number), of_prompt in rows]
    header = json.dumps({"evaluation": told["evaluation"]}).encode() + b"\n"
    (folder / "rows.jsonl.part").write_bytes(header + b"".join(lines[len(lines) - prompts :]) + torn)
    (folder / "rows.jsonl").unlink()
    (folder / "rows.jsonl.eval.json").unlink()


@pytest.mark.parametrize("prompts", [0, 1, 5, 6])
def test_a_resumed_evaluation_has_the_rows_and_figures_of_one_that_was_not_interrupted(
    prompts: int, complete: tuple[RunTester, RunOutcome]
) -> None:
    tester, whole = complete
    rows = rows_of(tester.folder / "rows.jsonl")
    interrupt(tester.folder, prompts, torn=b'{"task": "held", "prompt": 0, "ro')
    done = tester.run("eval", *WORDS, "--resume", "--json").assert_ok()
    assert without_seconds(rows_of(tester.folder / "rows.jsonl")) == without_seconds(rows)
    assert tasks_of(done.json) == tasks_of(whole.json)
    assert done.json["kept"] == 2 * prompts
    assert (f"{2 * prompts} of 12 completions are there already" in done.stderr) == (prompts > 0)
    assert not (tester.folder / "rows.jsonl.part").exists()


def test_seconds_are_those_of_all_commands(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, _ = complete
    interrupt(tester.folder, 6)
    assert tester.run("eval", *WORDS, "--resume", "--json").assert_ok().json["seconds"] == 4.0  # the last prompt was finished then


def test_a_complete_file_is_shown_again(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, whole = complete
    before = (tester.folder / "rows.jsonl").read_bytes()
    done = tester.run("eval", *WORDS, "--resume", "--json").assert_ok()
    assert (done.json["kept"], tasks_of(done.json)) == (12, tasks_of(whole.json))
    assert done.json["seconds"] == whole.json["seconds"]
    assert (tester.folder / "rows.jsonl").read_bytes() == before
    tester.run("eval", *WORDS, "--resume", "--seed", "5").assert_refused("rows.jsonl was made by another evaluation: run.seed 0 (now 5)")


def test_prompts_of_a_complete_file_that_lost_rows_are_evaluated_again(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, whole = complete
    rows = rows_of(tester.folder / "rows.jsonl")
    tester.write_jsonl("rows.jsonl", [*rows[2:6], *rows[7:]])  # all of a prompt, and one of two
    done = tester.run("eval", *WORDS, "--resume", "--json").assert_ok()
    assert done.json["kept"] == 8
    assert without_seconds(rows_of(tester.folder / "rows.jsonl")) == without_seconds(rows)
    assert tasks_of(done.json) == tasks_of(whole.json)


def test_more_engines_may_continue(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, whole = complete
    interrupt(tester.folder, 3)
    assert tasks_of(tester.run("eval", *WORDS, "-i", "2", "--resume", "--json").assert_ok().json) == tasks_of(whole.json)


def test_what_was_made_otherwise_is_refused_by_what_differs(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, _ = complete
    interrupt(tester.folder, 3)
    words = ("--eval-samples", "3", "--eval-temperature", "0.5", "--seed", "1")
    tester.run("eval", *WORDS[:-4], *words, *WORDS[-2:], "--resume").assert_refused(
        "run.seed 0 (now 1)", "eval.eval_samples 2 (now 3)", "eval.eval_temperature 0.6 (now 0.5)", "name another --out"
    )
    tester.fake_data("more.jsonl", "ee")
    tester.run("eval", *WORDS, "--resume").assert_refused("data.eval/more ")
    tester.fake_data("more.jsonl", "ef")
    weights = tester.folder / "model" / "config.json"
    weights.write_text(weights.read_text() + " ")
    tester.run("eval", *WORDS, "--resume").assert_refused("files.config.json ")


def test_what_is_not_complete_is_not_lost_by_mistake(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, _ = complete
    interrupt(tester.folder, 3)
    tester.run("eval", *WORDS).assert_refused("rows.jsonl.part has an evaluation that did not complete; add --resume to continue it")
    tester.run("eval", *WORDS[:-2], "--resume").assert_refused("--resume continues the file of --out; type --out FILE too")


def test_another_command_that_writes_the_file_is_not_disturbed(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, _ = complete
    interrupt(tester.folder, 3)
    with (tester.folder / "rows.jsonl.part").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        tester.run("eval", *WORDS, "--resume").assert_refused("another evaluation is writing rows.jsonl.part")


@pytest.mark.parametrize("damage", [b"{}\n", b"[]\n", b"\xff\n", b"{\n", b'{"task": "held"}\n'])
def test_a_damaged_file_is_refused(damage: bytes, complete: tuple[RunTester, RunOutcome]) -> None:
    tester, _ = complete
    interrupt(tester.folder, 3, torn=damage)
    tester.run("eval", *WORDS, "--resume").assert_refused("rows.jsonl.part is damaged", "remove it")


def test_a_file_without_a_whole_line_begins_anew(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, whole = complete
    interrupt(tester.folder, 0)
    (tester.folder / "rows.jsonl.part").write_bytes(b'{"evaluation": {"sett')
    done = tester.run("eval", *WORDS, "--resume", "--json").assert_ok()
    assert (done.json["kept"], tasks_of(done.json)) == (0, tasks_of(whole.json))


def test_a_lost_engine_leaves_what_is_finished(tester: RunTester) -> None:
    """The engine never answers its first request; the prompts that it answered are kept, and are not asked again."""
    words = ("eval", *WORDS[:4], *WORDS[5:], "-b", "faulty", "--fault", "loses", "-imbs", "1")
    first = tester.run(*words)
    assert first.exit_code == 1, first
    assert "what is finished is in rows.jsonl.part; the same command with --resume continues" in first.stderr
    second = tester.run(*words, "--resume")
    assert (second.exit_code, second.written) == (1, ()), second
    assert "6 of 8 completions are there already" in second.stdout


def test_a_line_that_was_cut_does_not_spoil_the_next(tmp_path: Path) -> None:
    """Two interruptions, the first of them in the midst of a line."""
    identity = {"settings": {"run.seed": 0}}
    for number in range(3):
        part = PartFile(tmp_path / "rows.jsonl", resume=number > 0)
        assert sorted(part.begin(identity)) == [("held", before) for before in range(number)]
        part.keep("held", number, [{"index": 0}], 1.0)
        part.close()
        with part.path.open("ab") as file:
            file.write(b'{"task": "held", "pro')


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), unique=True),
    st.data(),
)
def test_law_any_cut_and_any_order_give_the_same_prompts(keys: list[tuple[str, int]], data: st.DataObject) -> None:
    """Cut the file at any byte, read it, and append the prompts that are not there, in any order, some of them twice: all are there, with
    the rows that were first."""
    header = json.dumps({"evaluation": {"seed": 0}}).encode() + b"\n"
    made = {key: FinishedPrompt(*key, [{"index": 0, "prediction": f"{key}\n"}]) for key in keys}
    lines = [one.as_line() for one in made.values()]
    content = header + b"".join(lines)
    cut = data.draw(st.integers(0, len(content)))
    known, kept, whole = finished_prompts(content[:cut])
    assert content[:cut][:whole] == content[:whole]
    assert known == (None if cut < len(header) else {"seed": 0})
    assert len(kept) == sum(len(header) + len(b"".join(lines[: n + 1])) <= cut for n in range(len(lines)))
    missing = data.draw(st.permutations([key for key in keys if key not in kept]))
    again = [FinishedPrompt(*key, [{"index": 0, "prediction": "other"}]).as_line() for key in kept]
    rest = b"".join([*(made[key].as_line() for key in missing), *again])
    start = content[:whole] or header
    assert finished_prompts(start + rest)[1] == made


@pytest.mark.full
@pytest.mark.parametrize("engines", ["1", "2"])
def test_killed_in_the_midst_and_resumed(engines: str, tester: RunTester) -> None:
    """SIGKILL after some prompts; a later command gives the rows of an evaluation that ran through."""
    tester.fake_data("more.jsonl", "ef")
    tester.write("slow.py", SLOW)
    words = ("eval", *WORDS, "-rt", "./slow.py:score", "-i", engines)
    whole = tester.run(*words, "--json").assert_ok()
    rows = rows_of(tester.folder / "rows.jsonl")
    (tester.folder / "rows.jsonl").unlink()
    part = tester.folder / "rows.jsonl.part"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=tester.folder,
        env={**tester.plugins.environment, **QUIET},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as command:
        until = time.monotonic() + 120
        while not part.exists() or part.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < until, "no prompt is finished"
            time.sleep(0.02)
        command.kill()
    done = tester.run(*words, "--resume", "--json").assert_ok()
    assert 4 <= done.json["kept"] < 12
    assert without_seconds(rows_of(tester.folder / "rows.jsonl")) == without_seconds(rows)
    assert tasks_of(done.json) == tasks_of(whole.json)


def test_an_edited_file_that_a_setting_names_makes_another_evaluation(tester: RunTester) -> None:
    """The script of an agent, a grader, the module of a taskset: their code decides answers or rewards."""
    settings = {"sampling.options.command": ["python3", "agent.py"], "eval.eval_dataset": {"a": "env:verifiers:./tasks.py?count=4"}}
    (tester.folder / "agent.py").write_text("1")
    (tester.folder / "tasks.py").write_text("1")
    (tester.folder / "held.jsonl").write_text("{}")
    with chdir(tester.folder):
        first = _named_files({**settings, "data.dataset": "held.jsonl"})
        assert sorted(first) == ["file ./tasks.py", "file agent.py"]
        for name in ("agent.py", "tasks.py"):
            (tester.folder / name).write_text("2")
            assert _named_files(settings) != first
            (tester.folder / name).write_text("1")
        assert _named_files(settings) == first


def test_a_resumed_evaluation_refuses_an_edited_file(complete: tuple[RunTester, RunOutcome]) -> None:
    tester, _ = complete
    tester.write("prompt.py", "1")
    words = (*WORDS[:-1], "other.jsonl", "--system-prompt", "prompt.py")
    tester.run("eval", *words).assert_ok()
    tester.write("prompt.py", "2")
    refused = tester.run("eval", *words, "--resume")
    assert refused.exit_code == 2
    assert "file prompt.py" in refused.stderr
