"""The tester runs the real command line, and its assertions fail when they should."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from rlcore.testing import RunOutcome, RunTester


def outcome(exit_code: int = 2, stdout: str = "", stderr: str = "error: no\n", written: tuple[Path, ...] = ()) -> RunOutcome:
    return RunOutcome(argv=("train",), exit_code=exit_code, stdout=stdout, stderr=stderr, written=written)


def test_a_refusal_is_one_sentence_with_code_two_and_nothing_written() -> None:
    outcome().assert_refused("no")
    bad = [
        outcome(exit_code=1),
        outcome(stderr=""),
        outcome(stderr="Traceback\n  line\nerror: no\n"),
        outcome(stderr="error: something else\n"),
        outcome(written=(Path("runs/x"),)),
    ]
    for one in bad:
        with pytest.raises(AssertionError, match="rlcore train"):
            one.assert_refused("no")


def test_success_and_json() -> None:
    assert outcome(0, 'hello\n{"a": 1}\n').assert_ok().json == {"a": 1}
    for one in (outcome(0, ""), outcome(0, "[1]\n")):
        with pytest.raises(AssertionError):
            _ = one.json
    with pytest.raises(AssertionError, match="exit code 2"):
        outcome().assert_ok()


@pytest.mark.parametrize("in_process", [True, False], ids=["inside", "outside"])
def test_a_command_sees_the_plugins_of_the_tester(tmp_path: Path, in_process: bool) -> None:
    tester = RunTester(tmp_path, in_process=in_process).with_fakes()
    done = tester.run("plugins").assert_ok()
    assert "rlcore-plugin-fakes" in done.stdout
    assert done.written == ()
    assert "rlcore-plugin-fakes" not in RunTester(tmp_path / "other", in_process=True).run("plugins").stdout


def test_a_wrong_command_is_refused(tmp_path: Path) -> None:
    RunTester(tmp_path).run("trian").assert_refused("trian", "train")
    RunTester(tmp_path, in_process=True).run("trian").assert_refused("trian", "train")


def test_written_files_are_listed(tmp_path: Path) -> None:
    tester = RunTester(tmp_path)
    old = tester.write("a/old.txt", "x")
    before = tester._files()
    old.write_text("longer", "utf-8")
    tester.write_jsonl("new.jsonl", [{"a": "ä"}])
    tester.plugins.install("p")
    after = tester._files()
    assert sorted(str(path) for path in after if before.get(path) != after[path]) == ["a/old.txt", "new.jsonl"]
    assert (tmp_path / "new.jsonl").read_text("utf-8") == '{"a": "ä"}\n'


def test_a_run_of_fakes_resolves(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    tester.run("train", tester.fake_run(), "--dry-run").assert_ok()


@pytest.mark.parametrize(
    ("backend", "algorithm"),
    [("fake", {}), ("fake-pipeline", {"loss": "clipped", "estimator": "group_norm", "kl_coeff": 0.001})],
)
def test_a_run_of_fakes_learns(tmp_path: Path, backend: str, algorithm: dict[str, object]) -> None:
    """The whole program, real reward processes included, on a policy that is a table; one process or two stages."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    training = {"name": backend, "learning_rate": 0.2}
    config = tester.fake_run(run={"num_episodes": 20, "max_steps": 40}, training=training, algorithm=algorithm)
    done = tester.run("train", config, "--json").assert_ok()
    assert done.json["steps"] == 40
    (metrics,) = [path for path in done.written if path.name == "metrics.jsonl"]
    rewards = [json.loads(line)["reward/mean"] for line in (tmp_path / metrics).read_text("utf-8").splitlines()]
    assert len(rewards) == 40
    assert np.mean(rewards[-10:]) > np.mean(rewards[:10]) + 0.15


READER = """
from rlcore.api import CommandSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_commands():
    return [CommandSpec(name="read", target="rlcore_plugin_reader.command:Read", summary="Reads.")]
"""
READ = """
import os, sys
from rlcore.api.commands import Command

class Read(Command):
    def add_arguments(self, parser):
        pass

    def run(self, args):
        print(sys.stdin.read(), os.environ["SAID"], os.path.basename(os.getcwd()))
        return 0
"""


@pytest.mark.parametrize("in_process", [True, False], ids=["inside", "outside"])
def test_a_command_gets_its_input_and_its_variables_and_leaves_none(tmp_path: Path, in_process: bool) -> None:
    tester = RunTester(tmp_path / "here", in_process=in_process)
    tester.plugins.install("reader", READER, files={"command.py": READ})
    before = dict(os.environ), sys.stdin
    assert tester.run("read", stdin="typed", env={"SAID": "said"}).assert_ok().lines == ["typed said here"]
    assert (dict(os.environ), sys.stdin) == before
