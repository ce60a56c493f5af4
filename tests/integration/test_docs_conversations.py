"""docs/authors/conversations.md is run: its conversation, table, reward and suite, exactly as printed, in a package that a run finds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import ConversationSuite, RunTester, write_fake_model

PAGE = (Path(__file__).parents[2] / "docs" / "authors" / "conversations.md").read_text(encoding="utf-8")
CONVERSATION, TABLE, REWARD, SUITE = re.findall(r"<!-- test: guess -->\n```(?:python|toml)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


INLINE, INLINE_SUITE = re.findall(r"<!-- test: calculator -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.plugins.install("acme", distribution="acme-rlcore", target="acme_rlcore")
    (made.plugins.root / "acme_rlcore.py").write_text(CONVERSATION, encoding="utf-8")
    made.write("guessed.py", REWARD)
    return made


def test_a_run_with_the_table_and_the_reward_of_the_page(tester: RunTester) -> None:
    model = str(write_fake_model(tester.folder / "digits", "0123456789abcdefghijklmnopqrstuvwxyz"))
    rows = [{"messages": {"role": "user", "content": "0"}, "gt_answer": digit} for digit in "147"]
    data = str(tester.write_jsonl("digits.jsonl", rows))
    config = tester.fake_run(model={"model": model}, data={"dataset": data}, run={"max_steps": 1}, **tomllib.loads(TABLE))
    outcome = tester.run("train", config, "-rt", "./guessed.py:guessed", "--json").assert_ok()
    folder = tester.folder / outcome.json["run"]
    rows = list(RunRecord(folder).rollouts(1))
    said = [[message["content"] for message in row["turns"] if not message["policy"]] for row in rows if "turns" in row]
    assert said
    assert {hint for hints in said for hint in hints} <= {"higher", "lower"}
    assert max(map(len, said)) == 2
    planned = tester.run("train", config, "--guesses", "4", "--dry-run", "--json").assert_ok().json
    assert planned["config"]["sampling"]["options"] == {"guesses": 4}


def test_the_suites_of_the_page_pass(tester: RunTester) -> None:
    test = tester.write("test_guess.py", SUITE + INLINE_SUITE)
    tester.write("calculator.py", INLINE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    environment = {**tester.plugins.environment}
    done = subprocess.run(command, cwd=tester.folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "16 passed" in done.stdout


def test_a_result_stands_inside_the_answer_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("calculator")
    exec(INLINE, module.__dict__)
    monkeypatch.setitem(sys.modules, "calculator", module)
    talk = ConversationSuite().begin(module.Calculator(), ("1+2 is <sum>1+2</sum>, I think", " so 3"))
    said = talk.played()
    ((segment,), (message,)) = said.segments, said.messages
    assert message.content == "1+2 is <sum>1+2</sum><result>3</result> so 3"
    assert talk.tokenizer.decode(segment.token_ids[~segment.policy_mask].tolist()) == "<result>3</result>"
    assert said.extra == {"calls": 1}


def test_a_conversation_without_a_transcript_is_one_turn() -> None:
    module = ModuleType("ask_once")
    (text,) = re.findall(r"<!-- test: ask_once -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    exec(text, module.__dict__)
    talk = ConversationSuite().begin(module.AskOnce(), ("three",))
    said = talk.played()
    ((segment,), (message,)) = said.segments, said.messages
    assert message.content == talk.tokenizer.decode(segment.token_ids.tolist()) == "three"
    assert segment.policy_mask.all()


def test_the_class_works_from_a_file(tester: RunTester) -> None:
    tester.write(
        "guess.py", CONVERSATION.replace("class Guess(Conversation):\n", "class Guess(Conversation):\n    Options = GuessOptions\n\n")
    )
    config = tester.fake_run(run={"max_steps": 1}, sampling={"max_new_tokens": 16})
    outcome = tester.run("train", config, "--conversation", "./guess.py:Guess", "--guesses", "1", "--json").assert_ok()
    manifest = json.loads((tester.folder / outcome.json["run"] / "manifest.json").read_text(encoding="utf-8"))
    (ours,) = [one for one in manifest["plugins"] if one["kind"] == "conversation"]
    assert ours["distribution"].endswith("guess.py")


@pytest.mark.parametrize("name", re.findall(r"`(tests/[\w/.*]+)`", PAGE))
def test_the_files_that_the_page_names_are_there(name: str) -> None:
    assert list(Path(__file__).parents[2].glob(name.rstrip("/")))
