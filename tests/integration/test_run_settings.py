"""Settings that once did nothing, or something else: each is seen to act in a whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunOutcome, RunTester

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
    folder = tmp_path / done.json["run"]
    for name, field in (("eval/say/step-0.jsonl", "prediction"), ("rollouts/step-1.jsonl", "text")):
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
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
        (["--runtime", "local", "-zero", "2"], ["zero", "--runtime ray"]),
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
from rlcore.api import TrackerSpec, hookimpl
rlcore_api = "1.0"
class Bad:
    def __init__(self): raise OSError("no network today")
@hookimpl
def rlcore_register_trackers(): return [TrackerSpec(name="bad", target="rlcore_plugin_bad:Bad", summary="Never made")]
"""
    tester.plugins.install("bad", source)
    done = tester.run("train", config, "--json").assert_ok()
    assert "no network today" in done.json["switched_off"]["bad"]


def test_a_row_may_route_itself_to_an_unpackaged_reward(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    rows = [{"messages": {"role": "user", "content": letter}, "gt_answer": letter, "reward": "half"} for letter in "abcdef"]
    tester.write_jsonl("train.jsonl", rows)
    tester.run("train", config, "-rt", "./half.py:Half", "--json").assert_ok()


def test_two_rewards_of_one_name_are_refused(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    second = tester.write("second.toml", '[[rewards]]\nname = "fake"\n[[rewards]]\nname = "Fake"\n')
    tester.run("train", config, str(second)).assert_refused("fake", "twice")
