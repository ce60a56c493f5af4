"""Trials of Harbor itself, in the environment of ``rlcore env build harbor``, which RLCORE_TEST_HARBOR names. A script plays the policy,
because no tiny model writes the JSON of Harbor's agent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import string
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlcore.api.conversations import Dialogue
from rlcore.testing import EnvironmentSuite, RunTester
from tests.levels import need

pytestmark = pytest.mark.skipif(not os.environ.get("RLCORE_TEST_HARBOR"), reason="needs RLCORE_TEST_HARBOR: rlcore env build harbor")
TASKS = Path(__file__).parents[1] / "tasks"
PLAYED = ("greeting", "lines", "repair")


def answer(*commands: str, done: bool = False) -> str:
    """What terminus-2 expects of a model."""
    keys = [{"keystrokes": f"{command}\n", "duration": 0.1} for command in commands]
    return json.dumps({"analysis": "", "plan": "", "commands": keys, "task_complete": done})


DONE = answer(done=True)
RIGHT = {
    "greeting": "echo hello > greeting.txt",
    "lines": "grep -c $LEVEL log.txt > count",
    "repair": r"sed -i 's/prices\[:-1\]/prices/' shop.py",
}


def row(task: str) -> dict[str, str]:
    return {"task": str(TASKS / task)}


class _Harbor(EnvironmentSuite):
    """Its rules take a minute, so only the tests below use what it starts."""

    environment = "harbor"
    alphabet = string.printable
    seconds = 300.0
    cancel_seconds = 10.0
    __test__ = False

    def __init__(self, **options: Any) -> None:
        self.options = options


def play(
    *episodes: tuple[str, tuple[str, ...]], agent: str = "terminus-2", missing: str = "mask", workers: int = 2, **options: Any
) -> list[Dialogue]:
    need("namespaces")
    with _Harbor(agent=agent, on_missing_reward=missing).table(workers=workers, **options) as table:
        return table.finish([table.begin(row(task), script) for task, script in episodes], 600)


def left() -> list[str]:
    """Processes of sessions and workers that still live below this one."""
    words = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
    return [line[:80] for line in words if any(name in line for name in ("bwrap", "tmux", "rlcore_gateway.host"))]


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_the_oracle_scores_1_and_doing_nothing_0(agent: str, reward: float) -> None:
    ends = play(*((task, ("",)) for task in PLAYED), agent=agent)
    assert [end.extra["reward"] for end in ends] == [reward] * 3, [end.extra["reason"] for end in ends]
    assert [end.extra.get("reward_files") for end in ends] == [None, None, 1.0]
    assert not left()


def test_its_own_agent_plays_in_a_terminal_and_its_record_of_the_tokens_is_the_ledger(tmp_path: Path) -> None:
    scripts = [(task, (answer(RIGHT[task]), DONE, DONE)) for task in PLAYED] + [
        ("greeting", (answer("echo bye > greeting.txt"), DONE, DONE))
    ]
    ends = play(*scripts)
    assert [(end.extra["outcome"], end.extra["reward"], end.extra["reason"]) for end in ends] == [
        ("ok", reward, "") for reward in (1, 1, 1, 0)
    ]
    for end, (_, script) in zip(ends, scripts, strict=True):
        (segment,) = end.segments
        assert segment.policy_mask.sum() == sum(map(len, script)) + len(script), "each answer and the token that ends it"
    assert not left()


def test_a_record_with_another_token_is_a_failure_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    (end,) = play(("greeting", (answer(RIGHT["greeting"]), DONE, DONE)), agent="wrong_record:WrongRecord")
    assert (end.extra["outcome"], end.extra["reward"]) == ("environment", None), end.extra["reason"]
    assert "token" in end.extra["reason"]


def test_a_task_that_needs_an_image_is_not_run() -> None:
    (end,) = play(("compiler", ("",)))
    assert (end.extra["outcome"], end.extra["reward"]) == ("environment", None)
    assert "task rlcore/compiler needs an image: not run (RUN in line 2 of environment/Dockerfile)" in end.extra["reason"]


@pytest.mark.parametrize(("missing", "outcome", "reward"), [("mask", "environment", None), ("zero", "ok", 0.0)])
def test_tests_without_a_reward_are_masked_or_give_0(missing: str, outcome: str, reward: float | None, tmp_path: Path) -> None:
    endings = {
        "writes none": "true",
        "writes no number": "echo yes > /logs/verifier/reward.txt",
        "has no reward": "echo {} > /logs/verifier/reward.json",
    }
    for name, script in endings.items():
        shutil.copytree(TASKS / "greeting", tmp_path / name)
        (tmp_path / name / "tests/test.sh").write_text(f"#!/bin/bash\n{script}\n")
    ends = play(*((str(tmp_path / name), ("",)) for name in endings), agent="nop", missing=missing)
    assert [end.extra["reward"] for end in ends] == [reward] * 3, [end.extra["reason"] for end in ends]
    escape = answer("mkdir -p /logs/verifier/reward.txt/a")  # Harbor cannot remove it, nor the tests write it
    (broken,) = play(("greeting", (escape, DONE, DONE)), missing=missing)
    assert (broken.extra["outcome"], broken.extra["reward"]) == (outcome, reward), broken.extra


def test_what_zero_does_not_cover_is_masked(tmp_path: Path) -> None:
    for name, lines in {"another name": ("#!/bin/bash", "echo '{\"files\": 1}' > /logs/verifier/reward.json"), "no tests": ()}.items():
        shutil.copytree(TASKS / "greeting", tmp_path / name)
        (test := tmp_path / name / "tests/test.sh").unlink()
        if lines:
            test.write_text("\n".join((*lines, "")))
    ends = play(*((str(tmp_path / name), ("",)) for name in ("another name", "no tests")), agent="nop", missing="zero")
    assert [(end.extra["outcome"], end.extra["reward"]) for end in ends] == [("environment", None)] * 2, [end.extra for end in ends]
    assert "the tests wrote no reward 'reward'; they wrote files" in ends[0].extra["reason"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "the row has no column task; read tasks with -d env:harbor:FOLDER"),
        ({"task": "link"}, "secret.txt is a link that leads out of the task"),
    ],
)
def test_a_row_without_a_task_or_with_one_that_reads_other_files_is_refused(given: dict[str, str], words: str, tmp_path: Path) -> None:
    need("namespaces")
    shutil.copytree(TASKS / "greeting", tmp_path / "link")
    (tmp_path / "link" / "secret.txt").symlink_to("/etc/hostname")
    messages = {"messages": [{"role": "user", "content": "a"}]}
    with _Harbor(agent="nop").table(workers=1) as table:
        (end,) = table.finish([table.begin({**messages, **({"task": str(tmp_path / "link")} if given else {})}, ("",))], 600)
    assert (end.extra["outcome"], end.extra["reward"]) == ("environment", None)
    assert words in end.extra["reason"]


def test_an_agent_that_harbor_has_not_is_named_with_the_closest_and_how_to_see_all() -> None:
    (end,) = play(("greeting", ("",)), agent="terminus-3")
    said = end.extra["reason"]
    assert "Harbor has no agent 'terminus-3', did you mean 'terminus-2'; \"$(rlcore env path harbor)\"/bin/harbor run --help lists" in said
    assert "or name a class as package.module:Class" in said, "it is not cut"


def test_what_the_policy_breaks_is_no_failure_of_the_environment() -> None:
    first = (
        (answer("kill -9 -1"), "the session has ended"),
        (answer("for p in /proc/[0-9]*; do echo 1 > $p/fd/1; done", RIGHT["greeting"]), ""),
        (answer("rm -rf /logs/* /app", RIGHT["greeting"]), ""),
    )
    ends = play(*(("greeting", (said, DONE, DONE)) for said, _ in first))
    for end, (_, reason) in zip(ends, first, strict=True):
        assert end.extra["outcome"] == ("crashed" if reason else "ok"), end.extra
        assert reason in end.extra["reason"]


@pytest.mark.nightly  # Harbor asks again, after pauses, before it believes that no call is left
def test_a_budget_that_is_used_up_is_graded_or_exhausted() -> None:
    (end,) = play(("greeting", (answer(RIGHT["greeting"]), DONE, DONE)), max_calls=1)
    assert (end.extra["outcome"], end.extra["reward"]) == ("exhausted", 1.0)


def _workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "rlcore_gateway.host" in " ".join(child.cmdline())]


@pytest.mark.parametrize(
    ("number", "deadline", "end"),
    [
        (signal.SIGKILL, 300.0, ("ok", 1.0)),
        pytest.param(signal.SIGSTOP, 60.0, ("timeout", None), marks=pytest.mark.nightly),  # it waits for its deadline
    ],
)
def test_a_process_that_is_killed_is_replaced_and_one_that_hangs_is_too_late(
    number: int, deadline: float, end: tuple[str, float | None]
) -> None:
    need("namespaces")
    script: tuple[str | None, ...] = (None, answer(RIGHT["greeting"]), DONE, DONE)
    with _Harbor(agent="terminus-2").table(workers=1, deadline=deadline, cancel_seconds=2.0) as table:
        episode = table.begin(row("greeting"), script)
        until = time.monotonic() + 300
        while not episode.open:
            assert episode.active.said is None, table.said
            assert time.monotonic() < until, table.said
            table.step([episode])
        (first,) = _workers()
        os.kill(first.pid, number)
        (said,) = table.finish([episode], 600)
        assert not first.is_running(), "it is killed, also if it is frozen"
        assert said.verdict is None or said.verdict.in_loss == (end[1] is not None)
        (after,) = table.finish([table.begin(row("greeting"), script[1:])], 600)
    assert (said.extra["outcome"], said.extra["reward"]) == end, said.extra
    assert (after.extra["outcome"], after.extra["reward"]) == ("ok", 1.0), after.extra
    assert not left()


# --- rows and options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("compiler", "task rlcore/compiler needs an image: not run (RUN in line 2 of environment/Dockerfile)"),
        ("", "; 1 of 4 tasks need one; leave these out with"),
        ("environment", "there is no task.toml in"),
        ("?all", "'all' is not a choice; the one choice is ?playable"),
    ],
)
def test_tasks_that_cannot_be_played_are_refused_before_a_run(source: str, words: str, tmp_path: Path) -> None:
    tester = RunTester(tmp_path)
    run = tester.with_fakes().fake_run()
    done = tester.run("train", run, "-d", f"env:harbor:{TASKS}/{source}", "--environment", "harbor", "-rt", "environment")
    done.assert_refused(words)
