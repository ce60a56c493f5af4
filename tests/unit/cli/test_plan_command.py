"""``rlcore plan`` as it is typed: the table, the flags to type, JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.testing import RunTester

SMALL = """
[group]
response_tokens = 100
response_sigma = 0.0
num_generations = 2
train_batch_size = 8

[update]
update_seconds = 0.5
"""


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True)
    made.write("small.toml", SMALL)
    return made


def test_the_table_ends_with_the_flags_to_type(tester: RunTester) -> None:
    done = tester.run("plan", "small.toml", "--devices", "4", "--updates", "5").assert_ok()
    lines = done.stdout.strip().splitlines()
    assert {"zero bubble", "synchronous", "synchronous, colocated"} <= {line.split("  ")[0] for line in lines}
    assert lines[-1].startswith("rlcore train … -i ")
    assert all(flag in lines[-1].split() for flag in ("-t", "-g", "-tbs", "-ibs", "--max-staleness", "-cbsl"))
    assert done.written == ()


def test_the_flags_are_those_of_train(tester: RunTester) -> None:
    words = tester.run("plan", "small.toml", "--devices", "4", "--updates", "5", "--json").assert_ok().json["flags"].split()
    typed = json.loads(tester.run("show", "config", *words, "--json").assert_ok().stdout.splitlines()[-1])
    assert str(typed["config"]["inference"]["num_inferencer"]) == words[words.index("-i") + 1]
    assert str(typed["config"]["schedule"]["max_staleness"]) == words[words.index("--max-staleness") + 1]


def test_as_json_the_figures_of_all_three_ways_are_there(tester: RunTester) -> None:
    words = ("plan", "small.toml", "--devices", "4", "--updates", "5", "--json")
    found = tester.run(*words).assert_ok().json
    assert found["devices"] == 4
    for way in ("zero_bubble", "synchronous", "colocated"):
        assert 0 < found[way]["trainer_busy"] <= 1
    assert found["workload"]["group"]["train_batch_size"] == 8
    assert found == tester.run(*words, "--seed", "0").json
    assert found["speedup_over_sync"] == pytest.approx(
        found["zero_bubble"]["groups_per_second"] / found["synchronous"]["groups_per_second"]
    )


def test_a_split_that_was_typed_is_not_searched(tester: RunTester) -> None:
    found = tester.run("plan", "small.toml", "-i", "3", "-t", "2", "--max-staleness", "2", "--updates", "5", "--json").assert_ok().json
    assert (found["devices"], found["zero_bubble"]["producers"], found["zero_bubble"]["trainers"]) == (5, 3, 2)
    assert found["zero_bubble"]["max_staleness"] == 2


def test_a_flag_overrides_the_file(tester: RunTester) -> None:
    typed = tester.run("plan", "small.toml", "--devices", "4", "-tbs", "16", "--response-tokens", "50", "--dry-run", "--json").assert_ok()
    group = typed.json["workload"]["group"]
    assert (group["train_batch_size"], group["response_tokens"], group["num_generations"]) == (16, 50.0, 2)


def test_a_dry_run_prints_a_workload_that_can_be_typed(tester: RunTester) -> None:
    shown = tester.run("plan", "--devices", "4", "--device-hours", "none", "--dry-run").assert_ok()
    tester.write("all.toml", shown.stdout)
    again = tester.run("plan", "all.toml", "--devices", "4", "--dry-run").assert_ok()
    assert again.stdout == shown.stdout


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "--devices 8"),
        (["--devices", "1"], "--devices 1: must be a whole number from 2"),
        (["--devices", "many"], "--devices many"),
        (["-i", "2"], "-t is missing"),
        (["-i", "2", "-t", "2", "--devices", "5"], "takes 4 devices"),
        (["--devices", "4", "--slots", "0"], "--slots 0: generation.slots must be a whole number from 1 to 65536; type --slots 256"),
        (["--devices", "4", "--batching", "some"], "must be continuous or batch"),
        (["--devices", "4", "--slot", "2"], "did you mean"),
        (["--devices", "4", "--device-hours", "-1"], "device_hours must be a finite number of at least 0.001, or none"),
        (["missing.toml", "--devices", "4"], "there is no configuration file missing.toml"),
        (["--devices", "3", "--producer-devices", "4"], "take 5 devices"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(tester: RunTester, argv: list[str], said: str) -> None:
    tester.run("plan", *argv).assert_refused(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[group]\nslots = 2\n", "bad.toml, line 2: group.slots is not a setting of a workload"),
        ("[groups]\nx = 1\n", "did you mean"),
        ("[group]\nfiltered = 1.0\n", "bad.toml, line 2: group.filtered = 1.0 must be"),
        ("group = 3\n", "must be a table, written [group]"),
    ],
)
def test_a_file_that_cannot_work_is_refused_with_its_line(tester: RunTester, text: str, said: str) -> None:
    tester.write("bad.toml", text)
    tester.run("plan", "bad.toml", "--devices", "4").assert_refused(said)
