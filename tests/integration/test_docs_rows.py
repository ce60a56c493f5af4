"""docs/how_to/data.md is run: its settings of columns and of the chat template, on rows and a template that they fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.page_walk import BLOCK
from tests.quickstart_folder import quickstart_in

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "data.md").read_text(encoding="utf-8")
FILES = {block["name"]: block["text"] for block in BLOCK.finditer(PAGE) if block["name"]}
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% for tool in tools or [] %}{{ tool['function']['name'] }}{% endfor %}"
    "{% if enable_thinking %}x{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_the_columns_of_the_page_are_read_from_objects_and_from_json_in_a_text(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    gold = {"ground_truth": 7}
    tester.write_jsonl("problems.jsonl", [{"question": "a", "reward_model": one} for one in (gold, json.dumps(gold), gold)])
    tester.write("columns.toml", FILES["columns.toml"])
    done = tester.run("train", tester.fake_run(), "columns.toml", "--max-steps", "1", "--json").assert_ok()
    rollout = tester.run("rollouts", done.json["run"], "--json").assert_ok().json
    assert (rollout["prompt"], rollout["gold"]) == ([{"role": "user", "content": "a"}], "7")
    tester.write_jsonl("problems.jsonl", [{"question": "a", "reward_model": {}}])
    tester.run("train", tester.fake_run(), "columns.toml", "--dry-run").assert_refused("problems.jsonl:1", "ground_truth")


def test_the_template_of_the_page_is_read(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    tester = RunTester(tmp_path, in_process=True)
    quickstart_in(tmp_path / "demo", tmp_path_factory, train=8, heldout=4)
    tester.write("template.toml", FILES["template.toml"])
    tester.write("mine.jinja", TEMPLATE)
    tester.write("tools.json", json.dumps([{"type": "function", "function": {"name": "add"}}]))
    words = ("train", "demo/run.toml", "template.toml", "--max-steps", "1", "-tbs", "4", "-g", "2", "--max-staleness", "0", "-ei", "0")
    done = tester.run(*words, "--json").assert_ok()
    saved = tmp_path / done.json["run"] / "checkpoints" / "step-1" / "model" / "chat_template.jinja"
    assert saved.read_text(encoding="utf-8") == TEMPLATE
    tester.write("mine.jinja", TEMPLATE.replace("enable_thinking", "another"))
    tester.run(*words).assert_refused("enable_thinking")


def test_the_program_of_the_page_holds_out_rows_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f'{{"messages": "{number}"}}' for number in range(300)]
    Path("all.jsonl").write_text("\n".join(rows), encoding="utf-8")
    exec(FILES["hold_out.py"], {})
    trained, held_out = (Path(name).read_text(encoding="utf-8").splitlines() for name in ("train.jsonl", "heldout.jsonl"))
    assert (len(trained), len(held_out)) == (200, 100)
    assert sorted(trained + held_out) == sorted(rows)


@pytest.mark.parametrize("flag", sorted(set(re.findall(r"`(--[a-z][a-z-]+)", PAGE)) - {"--rewards"}))
def test_every_flag_of_the_page_exists(flag: str, tmp_path: Path) -> None:
    assert flag in help_of(tmp_path)


def help_of(folder: Path) -> str:
    tester = RunTester(folder, in_process=True)
    return tester.run("train", "--help-all").assert_ok().stdout + tester.run("train", "--help").assert_ok().stdout
