"""Settings that once did nothing, or something else: each is seen to act in a whole run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunOutcome, RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET

HALF = """
from rlcore.api import Reward, Score

class Half(Reward):
    \"\"\"Right where the text is longer than one character.\"\"\"
    requires = ("gt_answer",)
    def score(self, item):
        return Score(value=float(len(item.text)), accuracy=float(len(item.text) > 1), parsed=item.text[:3])

def number(item):
    return float(len(item.text))
"""


def project(tmp_path: Path, **sections: Any) -> tuple[RunTester, str]:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write("half.py", HALF)
    return tester, tester.fake_run(**sections)


def records(tester: RunTester, done: RunOutcome) -> list[dict[str, Any]]:
    path = tester.folder / done.json["run"] / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def held_out(tmp_path: Path) -> dict[str, Any]:
    return {"eval_dataset": {"say": str(tmp_path / "train.jsonl")}, "eval_interval": 2}


def test_the_filter_reads_the_accuracy_of_the_reward_it_names_not_its_value(tmp_path: Path) -> None:
    tester, config = project(tmp_path, sampling={"num_generations": 16, "max_new_tokens": 4})
    flags = ["-rt", "./half.py:Half", "--filter-by", "./half.py:Half", "--filter-range", "0.01", "0.99"]
    done = tester.run("train", config, *flags, "--json").assert_ok()
    assert sum(record["groups/masked"] for record in records(tester, done)) < sum(record["groups"] for record in records(tester, done))


def test_what_was_judged_stands_in_the_evaluation_and_the_rollout_log(tmp_path: Path) -> None:
    tester, config = project(tmp_path, eval=held_out(tmp_path))
    done = tester.run("train", config, "-rt", "./half.py:Half", "--json").assert_ok()
    record = RunRecord(tmp_path / done.json["run"])
    for rows, field in ((record.evaluation_rows("say", 0), "prediction"), (list(record.rollouts(1)), "text")):
        assert any(row[field] for row in rows)
        assert all(row["parsed"] == row[field][:3] for row in rows)


def test_a_reward_without_accuracy_has_none_and_the_run_still_ends_in_json(tmp_path: Path) -> None:
    tester, config = project(tmp_path, eval=held_out(tmp_path))
    done = tester.run("train", config, "-rt", "./half.py:number", "--json").assert_ok()
    assert done.json["accuracy_before"] is None
    assert done.json["accuracy_after"] is None
    assert "say –" in tester.run("train", config, "-rt", "./half.py:number").assert_ok().stdout


def test_verdicts_of_an_evaluation_do_not_enter_the_figures_of_a_step(tmp_path: Path) -> None:
    tester, config = project(tmp_path, eval=held_out(tmp_path))
    done = tester.run("train", config, "--json").assert_ok()
    for record in records(tester, done):
        if "reward/accuracy" in record:
            assert record.get("reward/outcome/ok", 0.0) == pytest.approx(record["reward/accuracy"])


@pytest.mark.parametrize("staleness", [0, 1])
def test_the_last_evaluation_is_made_once(tmp_path: Path, staleness: int) -> None:
    tester, config = project(
        tmp_path, eval=held_out(tmp_path), run={"num_episodes": 9, "max_steps": 4}, schedule={"max_staleness": staleness}
    )
    done = tester.run("train", config, "--json").assert_ok()
    steps = [record["step"] for record in records(tester, done) if "eval/say" in record]
    assert len(steps) == len(set(steps))
    assert (steps[0], steps[-1]) == (0, 4)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--runtime", "local", "-zero", "2"], ["-zero 2", "training backend fake does not offer the layout zero", "type -zero 0"]),
        (["--runtime", "local", "--master_address", "10.0.0.3"], ["--master_address 10.0.0.3", "--runtime ray"]),
        (["--training-dtype", "bfloat16"], ["--training-dtype bfloat16", "float32"]),
        (["--inference-device", "cuda"], ["--inference-device cuda", "cpu"]),
    ],
)
def test_what_the_runtime_or_a_backend_cannot_do_is_refused(tmp_path: Path, flags: list[str], words: list[str]) -> None:
    tester, config = project(tmp_path)
    done = tester.run("train", config, *flags)
    assert (done.exit_code, done.written) == (2, ())
    for word in words:
        assert word in done.stderr.splitlines()[-1]


def test_no_rollout_log_means_none(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    done = tester.run("train", config, "--rollout-interval", "0", "--json").assert_ok()
    assert not [path for path in done.written if "rollouts" in path.parts]


def test_a_tracker_that_cannot_be_made_is_switched_off_and_named(tmp_path: Path) -> None:
    tester, config = project(tmp_path, log={"trackers": ["bad"]})
    source = """
from rlcore.api import Tracker, TrackerSpec, hookimpl
rlcore_api = "2.0"
class Bad(Tracker):
    def __init__(self): raise OSError("no network today")
    def open(self, run): ...
    def log(self, record): ...
@hookimpl
def rlcore_register_trackers(): return [TrackerSpec(name="bad", target="rlcore_plugin_bad:Bad", summary="Never made")]
"""
    tester.plugins.install("bad", source)
    done = tester.run("train", config, "--json").assert_ok()
    assert "no network today" in done.json["switched_off"]["bad"]


@pytest.mark.parametrize("call", ["open", "log", "close"])
def test_a_tracker_that_raises_is_switched_off_and_named_whatever_call_it_is(tmp_path: Path, call: str) -> None:
    tester, config = project(tmp_path, log={"trackers": ["fake"], "options": {"fake": {"fail": call}}})
    done = tester.run("train", config, "--json").assert_ok()
    assert f"told to fail in {call}" in done.json["switched_off"]["fake"]


def test_a_row_may_route_itself_to_an_unpackaged_reward(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    rows = [{"messages": {"role": "user", "content": letter}, "gt_answer": letter, "reward": "half"} for letter in "abcdef"]
    tester.write_jsonl("train.jsonl", rows)
    tester.run("train", config, "-rt", "./half.py:Half", "--json").assert_ok()


def test_two_rewards_of_one_name_are_refused(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    second = tester.write("second.toml", '[[rewards]]\nname = "fake"\n[[rewards]]\nname = "Fake"\n')
    tester.run("train", config, str(second)).assert_refused("fake", "twice")


@pytest.mark.parametrize("flag", ["--run-dir", "-sd", "-esd", "-rsd"])
def test_a_folder_that_cannot_be_made_is_refused_before_training_and_nothing_is_left(tmp_path: Path, flag: str) -> None:
    tester, config = project(tmp_path)
    tester.write("taken", "a file")
    done = tester.run("train", config, flag, "taken/below")
    assert (done.exit_code, done.written) == (2, ())
    assert "cannot be created" in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "runs").rglob("*")) or not [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]


@pytest.mark.parametrize("damage", ["weights", "config"])
def test_a_damaged_model_is_one_sentence(tmp_path: Path, damage: str) -> None:
    tester, config = project(tmp_path)
    tester.write({"weights": "model/fake_policy.npz", "config": "model/fake_tokenizer.json"}[damage], "junk")
    done = tester.run("train", config)
    assert done.exit_code == 2
    assert not [path for path in done.written if "runs" in path.parts]


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    config = tester.fake_run(run={"num_episodes": 9, "max_steps": 9})
    command = f"{sys.executable} -c '{PROGRAM}' train {config} | head -1"
    environment = {**tester.plugins.environment, **QUIET}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120)
    (summary,) = (tmp_path / "runs").rglob("summary.json")
    assert json.loads(summary.read_text())["steps"] == 9


def test_an_encoding_without_our_characters_does_not_end_the_run(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    tester.run("train", tester.fake_run(), env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}).assert_ok()


@pytest.mark.parametrize(
    "words",
    [
        ["-d", "pipe"],
        ["pipe"],
        ["--seed", "18446744073709551616"],
        ["--reward-deadline", "1e300"],
        ["-m", "x" * 5000],
        ["-d", "x" * 5000],
        ["deep.toml"],
        ["digits.toml"],
        ["-ed", '{"a":' + "[" * 5000 + "]" * 5000 + "}"],
        ["ratio.toml"],
    ],
    ids=[
        "data from a pipe",
        "toml from a pipe",
        "seed",
        "deadline",
        "long model",
        "long data",
        "deep toml",
        "digits",
        "deep json",
        "ratio",
    ],
)
def test_strange_input_is_one_sentence(tmp_path: Path, words: list[str]) -> None:
    tester, config = project(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    tester.write("deep.toml", "x = " + "[" * 50_000)
    tester.write("digits.toml", "[run]\nseed = " + "9" * 5000)
    tester.write("ratio.toml", '[data]\ndataset = [{path = "train.jsonl", ratio = 1e9}]')
    tester.run("train", config, *words).assert_refused()


def test_prompts_that_are_too_long_are_refused_or_dropped_and_counted(tmp_path: Path) -> None:
    tester, config = project(tmp_path, data={"max_prompt_tokens": 3}, eval=held_out(tmp_path))
    long = [{"messages": {"role": "user", "content": text}, "gt_answer": "a"} for text in ("abcabc", "b", "abcdefabcdef", "a", "c")]
    tester.write_jsonl("train.jsonl", long)
    refused = tester.run("train", config)
    refused.assert_refused("train.jsonl:1", "3 are allowed (and so are 1 more)", "--max-prompt-tokens to ", "--overlong drop")
    done = tester.run("train", config, "--overlong", "drop", "--json").assert_ok()
    said = "train: 2 prompts are longer than 3 tokens and are left out (--overlong drop)"
    assert done.stdout.count(said) == 1  # when it starts; the end is JSON
    assert done.json["dropped"] == {"train": 2, "eval/say": 2}
    assert said in done.json["remarks"]
    assert done.json["ledger"]["trained"] == 6  # two episodes of the three that are left
    folder = tmp_path / done.json["run"]
    assert json.loads((folder / "summary.json").read_text())["dropped"] == done.json["dropped"]
    rows = [json.loads(line) for line in (folder / "eval/say/step-0.jsonl").read_text().splitlines()]
    assert [row["prompt"][-1]["content"] for row in rows] == ["b", "a", "c"]


def test_data_of_which_every_prompt_is_too_long_is_refused(tmp_path: Path) -> None:
    tester, config = project(tmp_path, data={"max_prompt_tokens": 1, "overlong": "drop"})
    tester.write_jsonl("train.jsonl", [{"messages": {"role": "user", "content": "abc"}, "gt_answer": "a"}])
    tester.run("train", config).assert_refused("train.jsonl:1", "all others of train have more than 1 tokens", "--max-prompt-tokens to ")
