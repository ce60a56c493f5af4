"""What the specs of these rewards say about rows: gold answers that are lists in a text, and prompts that ask for another mark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

LAST_LINE = "The last line of your response should be of the form Answer: $Answer, where $Answer is the answer to the problem.\n\n"


def row(question: str, gold: str) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": question}],
        "data_source": "d",
        "ability": "math",
        "reward_model": {"ground_truth": gold},
    }


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.fake_run(sampling={"max_new_tokens": 2})
    return made


def dry(tester: RunTester, *words: str) -> Any:
    return tester.run("train", "run.toml", "-d", "train.jsonl", *words, "--dry-run", "--json")


@pytest.mark.parametrize("reward", ["boxed", "think_answer_tags"])
def test_a_list_of_one_answer_is_that_answer(tester: RunTester, reward: str) -> None:
    tester.write_jsonl("train.jsonl", [{**row("7 * 8?", '["56"]'), "completion": "<think>.</think><answer>56</answer>\\boxed{56}"}])
    text = "<think>.</think><answer>56</answer>" if reward == "think_answer_tags" else "\\boxed{56}"
    tester.write_jsonl("train.jsonl", [{**row("7 * 8?", '["56"]'), "completion": text}])
    assert tester.run("score", "train.jsonl", "--reward", reward, "--json").assert_ok().json["accuracy"] == 1.0
    tester.write_jsonl("train.jsonl", [row("7 * 8?", "56"), row("The roots?", '["1", "2"]')])
    dry(tester, "-rt", reward).assert_refused('train.jsonl:2: "gt_answer" is a JSON list of 2 answers')


def test_a_dry_run_says_what_to_type_if_prompts_ask_for_another_mark(tester: RunTester) -> None:
    tester.write_jsonl("train.jsonl", [row(LAST_LINE + "7 * 8?", "56"), row("7 * 9?", "63")])
    (said,) = [note for note in dry(tester, "-rt", "boxed").assert_ok().json["notes"] if "prompts ask for" in note]
    assert said.startswith(
        r"rlcore-plugin-math: train: 1 of 2 prompts ask for an answer with Answer:, and the reward boxed reads only \boxed{}"
    )
    typed = json.dumps({"by": ["answer_line"]})
    assert said.endswith(f"""type --rewards.boxed.extract '{typed}' -s \"\"""")
    fixed = dry(tester, "-rt", "boxed", "--rewards.boxed.extract", typed, "-s", "").assert_ok().json
    assert not [note for note in fixed["notes"] if "prompts ask for" in note]
    assert fixed["config"]["rewards"][0]["options"]["extract"]["by"] == ["answer_line"]


def test_a_run_says_it_when_it_starts(tester: RunTester) -> None:
    tester.write_jsonl("train.jsonl", [row(LAST_LINE + letter, "56") for letter in "abc"])
    done = tester.run("train", "run.toml", "-d", "train.jsonl", "-rt", "boxed").assert_ok()
    assert done.stdout.count("3 of 3 prompts ask for an answer with Answer:") == 1


def test_prompts_that_ask_for_the_box_or_for_nothing_get_no_remark(tester: RunTester) -> None:
    tester.write_jsonl("train.jsonl", [row(r"7 * 8? Answer in \boxed{}.", "56"), row("#### Problem\n7 * 8?", "56")])
    assert not [note for note in dry(tester, "-rt", "boxed").assert_ok().json["notes"] if "prompts ask for" in note]
