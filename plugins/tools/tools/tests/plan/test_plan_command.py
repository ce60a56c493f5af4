"""``rlcore plan`` as it is typed: the table, the flags to type, JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlcore_plugin_tools.plan.workload_file import workload_settings

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
WIDE = """
from rlcore.api import TrainingBackendSpec, TrainingCapabilities, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_training_backends():
    offered = TrainingCapabilities(layouts=frozenset({"single", "data", "tensor"}))
    target = "rlcore.testing.training.fake_training:FakeTraining"
    return [TrainingBackendSpec(name="wide", target=target, summary="Ranks of several devices", capabilities=offered)]
"""
"""A training backend that has the layout which the flags ask for; nothing loads it."""


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
    assert lines[-3].startswith("weights by shared: trainers stall for them ")
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


def test_trainers_of_several_devices_are_typed_as_they_are_printed(tester: RunTester) -> None:
    tester.plugins.install("wide", WIDE)
    words = ("plan", "small.toml", "-i", "3", "-t", "4", "--trainer-devices", "2", "--max-staleness", "2", "--updates", "5")
    found = tester.run(*words, "--json").assert_ok().json
    assert (found["devices"], found["zero_bubble"]["trainers"], found["zero_bubble"]["devices_used"]) == (7, 2, 7)
    typed = json.loads(
        tester.run("show", "config", *found["flags"].split(), "--trainer", "wide", "--json").assert_ok().stdout.splitlines()[-1]
    )
    assert (typed["config"]["training"]["num_trainers"], typed["config"]["training"]["tensor_parallel_size"]) == (4, 2)
    table = tester.run(*words).assert_ok().stdout
    assert "2 x 2" in table
    assert "-i 3 -t 4 -tp 2 -g 2" in table


def test_a_flag_overrides_the_file(tester: RunTester) -> None:
    typed = tester.run("plan", "small.toml", "--devices", "4", "-tbs", "16", "--response-tokens", "50", "--dry-run", "--json").assert_ok()
    group = typed.json["workload"]["group"]
    assert (group["train_batch_size"], group["response_tokens"], group["num_generations"]) == (16, 50.0, 2)


def test_a_dry_run_prints_a_workload_that_can_be_typed(tester: RunTester) -> None:
    shown = tester.run("plan", "--devices", "4", "--device-hours", "none", "--dry-run").assert_ok()
    tester.write("all.toml", shown.stdout)
    again = tester.run("plan", "all.toml", "--devices", "4", "--dry-run").assert_ok()
    assert again.stdout == shown.stdout


@pytest.mark.parametrize("path", workload_settings())
def test_every_flag_reaches_its_setting(tester: RunTester, path: str) -> None:
    flag = workload_settings()[path].spellings[0]
    tester.run("plan", "--devices", "4", "--dry-run", flag, "zzz").assert_refused(f"{flag} zzz: {path} must be ")


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
        (["--devices", "4", "--device-hours", "-1"], "device_hours must be a finite number from 0.001 to 1000000000, or none"),
        (["missing.toml", "--devices", "4"], "there is no configuration file missing.toml"),
        (["--devices", "3", "--producer-devices", "4"], "take 5 devices"),
        (["-i", "2", "-t", "3", "--trainer-devices", "2"], "-t 3: a trainer of this workload takes 2 devices"),
        (["--devices", "4", "--updates", "abc", "--dry-run"], "--updates abc: must be a whole number from 1"),
        (["--devices", "4", "--seed", "-1", "--dry-run"], "--seed -1: must be a whole number from 0"),
        (["--devices", "4", "--max-staleness", "x", "--dry-run"], "--max-staleness x"),
        (["--devices", "4", "-tbs", "1000000", "-g", "65536", "--dry-run"], "65,536,000,000 responses per update"),
        (["--devices", "4", "--step-seconds", "1e308"], "--step-seconds 1e308: generation.step_seconds must be a finite number from 1e-06"),
        (["--devices", "4", "--update-seconds", "1e308"], "must be a finite number from 0 to 1000000000"),
        (["--devices", "4", "--prefill-tokens-per-second", "1e-308"], "must be a finite number from 1e-06 to 1000000000"),
        (["--devices", "4", "--length-cut", "1e308", "--response-sigma", "10"], "group.length_cut must be a finite number"),
        (["--devices", "4", "--network-bandwidth", "1e308"], "weights.network_bandwidth must be a finite number from 0.001 to"),
        (["--devices", "16", "--transport", "shared"], "--transport shared: 16 devices are on 2 nodes"),
        (["--devices", "4", "--transport", "memory"], "must be auto, shared"),
        (["--devices", "4", "--response-tokens", "1e-308"], "group.response_tokens must be a finite number from 1e-09 to"),
        (["-i", "2", "-t", "2", "--producer-devices", "1" + "0" * 400], "producer_devices must be a whole number from 1 to 65536"),
        (["-i", "2", "-t", "2", "--reward-workers", "1000000000000"], "reward_workers must be a whole number from 1 to 4096"),
        (["--devices", "4", "--device-hours", "0.001", "--updates", "2"], "--device-hours 0.001: producers failed 1000 times"),
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
