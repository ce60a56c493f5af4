"""``rlcore train``: the reference's published command lines, the dry run, and what it refuses."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rlcore import __version__
from rlcore.testing import RunTester

PROMPT = "-s 'Please reason step by step, and put your final answer within \\\\boxed{}.'"
ONE_MACHINE = (
    "--dataset train.jsonl --model MODEL -t 4 -i 4 -b vllm -ibs 2 -tbs 4 -tMbs 1 -tmbs 4 -imbs 1 -rt boxed -g 4 -ibs 1 "
    f"-tbs 2 -tMbs 1 -tmbs 2 -imbs 1 {PROMPT} -tMbs 8 -p GRPO-Train-Align-Debug"
)
FOUR_NODES = (
    "-m MODEL -d train.jsonl --master_address 10.0.0.3 -t 16 -i 16 -p GRPO-Train-Align-Debug -g 2 -ibs 1 -tbs 2 -tMbs 1 "
    f"-tmbs 2 -imbs 1 -b vllm -e 2 -rt boxed {PROMPT} -tp 4 -pp 2"
)
ZERO_BUBBLE = (
    "-m MODEL -d train.jsonl -t 4 -i 4 -b vllm -a DAPO -imbs 8 -ibs 8 -tbs 8 -e 2 -rt boxed -si 25 -tMbs 2 -tmbs 2 -zero 2 "
    "-mpt 512 -mnt 3584"
)


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_data()
    return tester


def test_the_first_published_example_is_refused_as_it_stands(tester: RunTester) -> None:
    for dry in (["--dry-run"], []):
        tester.run("train", *shlex.split(ONE_MACHINE), *dry).assert_refused("-tMbs 8 is more than -tbs 2", "type -tMbs 2 or -tbs 8")


def test_an_example_with_zero_shows_how_the_trainers_divide_the_model(tester: RunTester) -> None:
    shown = tester.run("train", *shlex.split(ZERO_BUBBLE), "--dry-run").assert_ok().stdout
    assert "trainers: 4 ranks; -zero 2: FSDP2 divides weights, gradients and moments over 4 ranks, a layer stays whole from" in shown
    tester.run("train", *shlex.split(ZERO_BUBBLE), "--context-parallel-size", "2", "--trainer", "torch").assert_refused(
        "training backend torch does not offer the layout context (it offers data, single, tensor, zero)"
    )


@pytest.mark.parametrize(
    ("line", "absent", "same"),
    [
        (f"{ONE_MACHINE} -tMbs 2", ("needs the module vllm",), "-tbs 8"),
        (FOUR_NODES, ("needs the module vllm", "needs the module colossalai"), "-tbs 4"),
        (ZERO_BUBBLE, ("needs the module vllm",), "-tbs 32"),
    ],
    ids=["one-machine", "four-nodes", "zero-bubble"],
)
def test_the_published_examples_say_what_is_missing(line: str, absent: tuple[str, ...], same: str, tester: RunTester) -> None:
    outcome = tester.run("train", *shlex.split(line), "--dry-run", "--json").assert_ok()
    missing = " ".join(f"{item['what']}: {item['command']}" for item in outcome.json["missing"])
    assert all(word in missing for word in absent)
    assert any(same in note and "ColossalChat" in note for note in outcome.json["notes"])
    assert not outcome.written
    tester.run("train", *shlex.split(line)).assert_refused(*absent)


def test_without_ray_the_examples_say_so(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.config.plugin_selection.find_spec", lambda name: None if name == "ray" else object())
    outcome = tester.run("train", *shlex.split(ZERO_BUBBLE), "-zero", "0", "--dry-run", "--json").assert_ok()
    missing = {item["what"]: item["command"] for item in outcome.json["missing"]}
    assert "plugins/runtimes/ray" in missing["runtime ray needs the module ray, which is not installed"]


def test_a_dry_run_prints_the_plan_and_loads_nothing_heavy(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    run = tester.fake_run()
    probe = tester.write(
        "probe.py",
        "import sys; from rlcore.cli import main; print(main(sys.argv[1:])); print('torch' in sys.modules, 'ray' in sys.modules)",
    )
    done = subprocess.run(
        [sys.executable, str(probe), "train", run, "--dry-run"],
        cwd=tmp_path,
        env=tester.plugins.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["0", "False False"]
    assert "nothing is missing (plugins were found, not imported)" in done.stdout
    assert "inference.inference_batch_size = 3 (train_batch_size)" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_data_set_that_is_not_here_is_missing_only_for_a_dry_run(tester: RunTester) -> None:
    run = tester.fake_run()
    outcome = tester.run("train", run, "--dry-run", "-d", "nowhere.jsonl").assert_ok()
    assert "data set nowhere.jsonl is not found here" in outcome.stdout
    tester.run("train", run, "-d", "nowhere.jsonl").assert_refused("nowhere.jsonl is not found here")


def test_a_data_set_beside_the_file_is_the_one_that_is_meant(tester: RunTester) -> None:
    tester.fake_run()
    tester.write("sub/run.toml", '[data]\ndataset = "rows.jsonl"\n')
    tester.fake_data("sub/rows.jsonl")
    found = tester.run("train", "run.toml", "sub/run.toml", "--dry-run", "--json").assert_ok().json
    assert (found["config"]["data"]["dataset"][0]["path"], found["missing"]) == ("sub/rows.jsonl", [])


def test_it_trains_with_the_fakes(tester: RunTester) -> None:
    outcome = tester.run("train", tester.fake_run(), "--json").assert_ok()
    assert outcome.json["steps"] == 3
    assert any(path.name == "run.toml" and path.parts[0] == "runs" for path in outcome.written)
    assert "settings are derived from the others; rlcore show config" in outcome.stderr
    assert "inference.inference_batch_size = 3 (train_batch_size)" not in outcome.stderr


def test_a_dry_run_names_every_part_with_its_distribution(tester: RunTester) -> None:
    rows = [line.split() for line in tester.run("train", tester.fake_run(log={"trackers": ["fake"]}), "--dry-run").assert_ok().lines]
    rlcore = ["rlcore", __version__]
    for row in (
        ["runtime", "local", "rlcore-plugin-processes", "0.1.0"],
        ["transfer", "memory", *rlcore],
        ["data", "source", "jsonl", *rlcore],
    ):
        assert row in rows
    for label in ("algorithm", "estimator", "loss", "inference", "training", "reward", "tracker"):
        assert [label, "fake", "rlcore-plugin-fakes", "1.0"] in rows


def test_the_run_toml_of_a_run_names_what_reads_its_data(tester: RunTester) -> None:
    done = tester.run("train", tester.fake_run(), "--json").assert_ok()
    (data,) = tomllib.loads((tester.folder / done.json["run"] / "run.toml").read_text())["data"]["dataset"]
    assert (data["path"], data["source"]) == (str(tester.folder / "train.jsonl"), "jsonl")


TWIN = """
from rlcore.api import DataSourceSpec, RuntimeSpec, TrainingBackendSpec, WeightTransferSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_{hook}():
    return [{spec}(target="json:load", summary="", {more})]
"""
TWINS = {
    "runtime 'local'": ("runtimes", "RuntimeSpec", 'name="local"'),
    "weight transfer 'memory'": ("weight_transfers", "WeightTransferSpec", 'name="memory", reach="process"'),
    "training backend 'strong'": ("training_backends", "TrainingBackendSpec", 'name="strong", preference=99'),
    "data source 'jsonl'": ("data_sources", "DataSourceSpec", 'name="jsonl", suffixes=(".jsonl",)'),
}
RIVAL = """
from rlcore.api import RuntimeSpec, WeightTransferSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_runtimes():
    return [RuntimeSpec(name="other", target="json:load", summary="")]

@hookimpl
def rlcore_register_weight_transfers():
    return [WeightTransferSpec(name="other", target="json:load", summary="", reach="process")]
"""


@pytest.mark.parametrize("called", TWINS)
def test_auto_refuses_a_name_that_two_plugins_claim_and_takes_no_other(tester: RunTester, called: str) -> None:
    hook, spec, more = TWINS[called]
    tester.plugins.install("rival", RIVAL)
    for name in ("twin_a", "twin_b"):
        tester.plugins.install(name, TWIN.format(hook=hook, spec=spec, more=more))
    tester.fake_run(training={"name": "auto"} if hook == "training_backends" else {"name": "fake"})
    said = tester.run("train", "run.toml", "--dry-run").assert_refused(f"{called} is registered by", "switch one off: RLCORE_DISABLE=")
    assert "rlcore-plugin-twin_a and rlcore-plugin-twin_b" in said.stderr


def test_a_name_that_two_plugins_claim_is_no_matter_if_auto_would_not_take_it(tester: RunTester) -> None:
    for name in ("twin_a", "twin_b"):
        tester.plugins.install(name, TWIN.format(hook="runtimes", spec="RuntimeSpec", more='name="weak", preference=1'))
    assert tester.run("train", tester.fake_run(), "--dry-run", "--json").assert_ok().json["config"]["run"]["runtime"] == "local"


@pytest.mark.parametrize("flag", ["--runtime", "--transport", "--loss", "-m", "-e"])
def test_a_flag_without_its_value_does_not_take_the_next_flag_for_it(tester: RunTester, flag: str) -> None:
    tester.run("train", tester.fake_run(), flag, "--dry-run").assert_refused(f"{flag} needs a value: type {flag}")


RUNTIME = """
from pydantic import BaseModel, ConfigDict
from rlcore.api import RuntimeSpec, TrackerSpec, WeightTransferSpec, hookimpl
rlcore_api = "2.0"

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    crowd: int = 1
    after: int = 1

class Lanes(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    lanes: int = 1

@hookimpl
def rlcore_register_runtimes():
    read = ("run.master_address", "run.ray_dir")
    known = dict(name="many", target="rlcore_plugin_many:crew", summary="", config="rlcore_plugin_many:Options")
    return [RuntimeSpec(**known, reach="cluster", preference=99, settings=read)]

@hookimpl
def rlcore_register_weight_transfers():
    known = dict(name="many", target="rlcore_plugin_many:crew", summary="", config="rlcore_plugin_many:Lanes")
    return [WeightTransferSpec(**known, reach="cluster")]

@hookimpl
def rlcore_register_trackers():
    return [TrackerSpec(name="many", target="rlcore_plugin_many:crew", summary="", config="rlcore_plugin_many:Options")]

def crew(): ...
"""


@pytest.mark.parametrize(
    "flags",
    [["-t", "3"], ["-i", "2"], ["--num-inferencer=2"], ["--master-address", "host:1", "-t", "3"], ["--ray-dir", "ray"]],
    ids=["trainers", "producers", "glued", "address", "folder"],
)
def test_options_of_the_runtime_that_auto_chooses_are_flags(tester: RunTester, flags: list[str]) -> None:
    tester.plugins.install("many", RUNTIME)
    found = tester.run("train", tester.fake_run(), *flags, "--crowd", "7", "--dry-run", "--json").assert_ok().json["config"]["run"]
    assert (found["runtime"], found["options"]["crowd"]) == ("many", 7)


def test_a_flag_without_its_value_does_not_take_an_option_of_a_plugin_for_it(tester: RunTester) -> None:
    tester.plugins.install("many", RUNTIME)
    tester.run("train", tester.fake_run(), "-t", "3", "--loss", "--crowd", "7").assert_refused("--loss needs a value: type --loss")


def test_options_of_the_transfer_that_auto_chooses_are_flags(tester: RunTester) -> None:
    tester.plugins.install("many", RUNTIME)
    flags = ["--master-address", "host:1", "-t", "3", "--lanes", "4"]
    found = tester.run("train", tester.fake_run(), *flags, "--dry-run", "--json").assert_ok().json["config"]["weights"]
    assert (found["transport"], found["options"]["lanes"]) == ("many", 4)


def test_a_data_set_on_the_command_line_replaces_one_of_a_file_that_nothing_can_read(tester: RunTester) -> None:
    run = tester.fake_run(data={"dataset": [{"path": "x", "source": "nobody"}]})
    tester.run("train", run, "--dry-run").assert_refused("there is no data source 'nobody'")
    tester.run("train", run, "-d", str(tester.folder / "train.jsonl"), "--dry-run").assert_ok()


def test_a_flag_that_two_plugins_declare_is_one_sentence_with_both(tester: RunTester) -> None:
    tester.plugins.install("many", RUNTIME)
    run = tester.fake_run(log={"trackers": ["fake", "many"]})
    tester.run("train", run, "--after", "3").assert_refused(
        "--after is an option of tracker fake of rlcore-plugin-fakes and of tracker many of rlcore-plugin-many",
        "type --log.options.fake.after or --log.options.many.after",
    )
    done = tester.run("train", run, "--log.options.many.after", "3", "--dry-run", "--json").assert_ok()
    assert done.json["config"]["log"]["options"]["many"]["after"] == 3


def test_an_option_of_a_tracker_with_signs_in_its_name_is_typed_as_show_prints_it(tester: RunTester) -> None:
    tester.plugins.install("many", RUNTIME.replace('TrackerSpec(name="many"', 'TrackerSpec(name="c-d+e"').replace("crowd:", "large_crowd:"))
    run = tester.fake_run(log={"trackers": ["c-d+e"]})
    path = "log.options.c-d+e.large_crowd"
    assert any(line.startswith(f"{path} ") for line in tester.run("show", "tracker", "c-d+e").assert_ok().lines)
    for flag in (path, "log.options.c-d+e.large-crowd", "large-crowd"):
        done = tester.run("train", run, f"--{flag}", "3", "--dry-run", "--json").assert_ok()
        assert done.json["config"]["log"]["options"]["c-d+e"]["large_crowd"] == 3


def test_a_dry_run_shows_typed_settings_before_those_of_the_recipe(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    lines = tester.run("train", tester.fake_run(), "-a", "grpo", "--eval-samples", "2", "--dry-run").assert_ok().lines
    rows = [line for line in lines if line.startswith("  ") and line.split()[0].count(".") == 1]
    typed, recipe = (next(number for number, line in enumerate(rows) if line.endswith(end)) for end in ("--eval-samples", "recipe grpo"))
    assert typed < recipe
