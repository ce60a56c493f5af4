"""``rlcore eval MODEL``: what it shows, writes, refuses and counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.testing import RunTester

FAKE = ("model", "-b", "fake", "-rt", "fake", "-mnt", "2")
SILENT = """
from rlcore.api import Score

def score(item):
    return Score(value=float(len(item.text)))
"""
HALF = """
from rlcore.api import Score

def score(item):
    return Score(value=1.0, accuracy=float(1 / len(item.text)))
"""
INVALID = """
from rlcore.api import Outcome, Score

def score(item):
    return Score(value=1.0) if item.text else Score(value=0.0, outcome=Outcome.INVALID, reason="\\x1b[2J cleared")
"""
LOUD = """
def score(item):
    raise ValueError("no verdict today")
"""


def test_a_model_and_a_file_are_enough(tester: RunTester) -> None:
    done = tester.run("eval", *FAKE, "-d", "held.jsonl", "--eval-samples", "4").assert_ok()
    heading = next(line for line in done.lines if line.startswith("task  prompts"))
    assert heading.split() == ["task", "prompts", "avg@4", "pass@4", "maj@4", "reward", "length", "truncated", "failed"]
    row = done.lines[done.lines.index(heading) + 1].split()
    assert row[:2] == ["held", "4"]
    assert row[-1] == "0"
    assert not done.written, "nothing is written without --out"


def test_neither_a_trainer_nor_a_recipe_is_needed(tester: RunTester) -> None:
    """The file asks for those of somebody else, which are not installed, and for a layout that this machine has not."""
    tester.with_only("rlcore-plugin-tools", "rlcore-plugin-processes")
    training = {"name": "colossalai", "device": "cuda:7", "num_trainers": 8, "options": {"sequence_parallel": "none"}}
    sections = {"training": training, "algorithm": {"name": "dapo", "options": {"odd": 1}}, "log": {"trackers": ["wandb"]}}
    config = tester.fake_run(**sections, weights={"transport": "object_store"}, run={"runtime": "ray"}, data={"dataset": "hf:no/such"})
    tester.run("train", config, "--dry-run", "--json")
    done = tester.run("eval", "model", config, "-d", "held.jsonl", "--json").assert_ok()
    assert done.json["tasks"]["held"]["completions"] == 4


def test_what_is_missing_is_said_with_what_to_type(tester: RunTester) -> None:
    tester.with_only("rlcore-plugin-tools", "rlcore-plugin-processes")
    words = ("eval", "model", "-d", "held.jsonl", "-b", "vllm", "-rt", "boxed")
    refused = tester.run(*words).assert_refused("inference backend vllm is not installed", "reward boxed is not installed", "pip install")
    assert "recipe" not in refused.stderr
    planned = tester.run(*words, "--dry-run", "--json").assert_ok().json
    assert [item["what"] for item in planned["missing"]] == ["inference backend vllm is not installed", "reward boxed is not installed"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*FAKE,), "type -d and the path of a JSONL file"),
        (("model", "-b", "fake", "-d", "held.jsonl"), "type -rt and its name"),
        ((*FAKE, "-d", "none.jsonl"), "data set none.jsonl is not found here"),
        (("nowhere/at/all", *FAKE[1:], "-d", "held.jsonl"), "nowhere/at/all"),
        ((*FAKE, "-d", "held.jsonl", "--step", "1"), "model is not a run folder"),
        ((*FAKE, "-d", "held.jsonl", "--out", "gone/rows.jsonl"), "make it first"),
        ((*FAKE, "-d", "held.jsonl", "--out", "model"), "is a folder"),
        ((*FAKE, "-d", "held.jsonl", "--eval-samples", "2", "--eval-temperature", "0"), "--eval-temperature 0.6"),
        ((*FAKE, "-d", "bad.jsonl"), "bad.jsonl:1"),
        ((*FAKE, "-d", "held.jsonl", "--inference-environment", "no-such"), "has no bin/python"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(words: tuple[str, ...], said: str, tester: RunTester) -> None:
    tester.write("bad.jsonl", '{"messages": 3}\n')
    tester.run("eval", *words).assert_refused(said)


def test_a_checkpoint_without_its_run_is_a_model(tester: RunTester) -> None:
    trained = tester.run("train", "run.toml", "--json").assert_ok().json
    model = Path(trained["checkpoint"]) / "model"
    (tester.folder / "model" / "fake_tokenizer.json").rename(tester.folder / model / "fake_tokenizer.json")
    refused = tester.run("eval", trained["checkpoint"], *FAKE[1:], "-d", "held.jsonl", "--dry-run", "--json").assert_ok()
    assert refused.json["model"] == str(model)
    assert refused.json["run"] is None
    assert refused.json["step"] == int(Path(trained["checkpoint"]).name.removeprefix("step-")) > 0


def test_failures_are_counted_and_are_no_zeros(tester: RunTester) -> None:
    """The model says one of two texts; the reward has no verdict on one of them."""
    tester.write("half.py", HALF)
    words = ("model", "-b", "fake", "-rt", "./half.py:score", "-mnt", "1", "-d", "held.jsonl", "--eval-samples", "16", "--json")
    done = tester.run("eval", *words).assert_ok()
    found = done.json["tasks"]["held"]
    assert 0 < found["failed"] < found["completions"]
    assert found["figures"]["eval/held"] == 1.0, "an answer without a verdict is no wrong answer"
    assert found["figures"]["eval/held/failed"] == found["failed"]
    assert f"no verdict on {found['failed']} of 64 completions; the first: error, score: ZeroDivisionError" in done.stderr


def test_a_reward_that_always_fails_is_an_error(tester: RunTester) -> None:
    tester.write("loud.py", LOUD)
    done = tester.run("eval", "model", "-b", "fake", "-rt", "./loud.py:score", "-d", "held.jsonl")
    assert done.exit_code == 1
    assert "error: no completion could be judged; the first: score: ValueError: no verdict today" in done.stderr


def test_a_reward_without_accuracy(tester: RunTester) -> None:
    tester.write("silent.py", SILENT)
    words = ("eval", "model", "-b", "fake", "-rt", "./silent.py:score", "-mnt", "2", "-d", "held.jsonl", "--eval-samples", "2")
    figures = tester.run(*words, "--json").assert_ok().json["tasks"]["held"]["figures"]
    assert "eval/held" not in figures
    assert figures["eval/held/reward"] >= 0
    row = next(line for line in tester.run(*words).assert_ok().lines if line.startswith("held  ")).split()
    assert (row[:2], row[3:6]) == (["held", "4"], ["–"] * 3)


def test_a_file_that_is_there_is_not_overwritten(tester: RunTester) -> None:
    words = ("eval", *FAKE, "-d", "held.jsonl", "--out", "rows.jsonl")
    tester.write("rows.jsonl", "old\n")
    tester.run(*words).assert_refused("--out rows.jsonl: is there already; add --resume if it is this evaluation, else name another file")
    tester.run(*words, "--resume").assert_refused(
        "rows.jsonl is there already, and no rows.jsonl.eval.json beside it: rlcore eval did not make it", "name another --out"
    )
    assert (tester.folder / "rows.jsonl").read_text() == "old\n"


def test_the_file_of_rows_is_written_when_it_is_complete(tester: RunTester) -> None:
    tester.write("rows.jsonl", "")
    faulty = ("-b", "faulty", "--fault", "loses")
    done = tester.run("eval", "model", "run.toml", *faulty, "-d", "held.jsonl", "--out", "rows.jsonl", "--eval-samples", "8")
    assert done.exit_code == 1, done
    assert done.written == (Path("rows.jsonl.part"),)
    (tester.folder / "rows.jsonl.part").unlink()
    tester.run("eval", *FAKE, "-d", "held.jsonl", "--out", "rows.jsonl").assert_ok()
    rows = [json.loads(line) for line in (tester.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["task"] for row in rows] == ["held"] * 4
    assert not list(tester.folder.glob(".rows*"))


def test_versions_and_counts_are_in_the_answer(tester: RunTester) -> None:
    found = tester.run("eval", *FAKE, "-d", "held.jsonl", "--json").assert_ok().json
    assert found["versions"].keys() >= {"python", "rlcore"}
    assert found["tokens"] == sum(task["figures"]["eval/held/length"] * task["completions"] for task in found["tasks"].values())
    assert found["seconds"] > 0 < found["tokens_per_second"]


def test_an_invalid_verdict_is_a_failure_whose_reason_steers_no_terminal(tester: RunTester) -> None:
    tester.write("invalid.py", INVALID)
    done = tester.run("eval", "model", "-b", "fake", "-rt", "./invalid.py:score", "-mnt", "1", "-d", "held.jsonl", "--eval-samples", "16")
    assert done.exit_code == 0, done
    assert "the first: invalid, score: \\x1b[2J cleared" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_huge_reward_is_as_short_as_in_other_tables(tester: RunTester) -> None:
    tester.write("huge.py", "from rlcore.api import Score\n\ndef score(item):\n    return Score(value=1e300, accuracy=1.0)\n")
    done = tester.run("eval", "model", "-b", "fake", "-d", "held.jsonl", "-rt", "./huge.py:score").assert_ok()
    assert " 1e+300 " in done.stdout


def test_rewards_whose_sum_is_no_float_have_a_mean(tester: RunTester) -> None:
    tester.write("huge.py", "from rlcore.api import Score\n\ndef score(item):\n    return Score(value=1e308, accuracy=1.0)\n")
    words = ("eval", "model", "-b", "fake", "-d", "held.jsonl", "-rt", "./huge.py:score", "--json")
    assert tester.run(*words).assert_ok().json["tasks"]["held"]["figures"]["eval/held/reward"] == 1e308


@pytest.mark.parametrize(("value", "place"), [(0.9, 2), (1.0, 5)])
def test_the_mean_reward_is_first_if_rewards_are_parts(value: float, place: int, tester: RunTester) -> None:
    tester.write("part.py", f"from rlcore.api import Score\n\ndef score(item):\n    return Score(value={value}, accuracy=0.0)\n")
    done = tester.run("eval", "model", "-b", "fake", "-d", "held.jsonl", "-rt", "./part.py:score", "--eval-samples", "2").assert_ok()
    (heading,) = (line.split() for line in done.lines if line.startswith("task  prompts"))
    assert heading.index("reward") == place
    assert "--solved" not in done.stdout, "the reward has no such option"


def test_quiet_shows_no_plan(tester: RunTester) -> None:
    done = tester.run("eval", *FAKE, "-d", "held.jsonl", "-q").assert_ok()
    assert done.lines[0].startswith("task  prompts"), done
    assert not done.stderr


def test_an_evaluation_says_nothing_about_training(tester: RunTester) -> None:
    done = tester.run("eval", "model", "run.toml", "-d", "held.jsonl", "--dry-run", "--json").assert_ok()
    (said,) = [note for note in done.json["notes"] if note.startswith("evaluation: ")]
    assert said == "evaluation: eval_temperature = 0.6 (default)"
