"""docs/coming_from: each setting on the right of a table exists, each value is accepted, and each run.toml passes a dry run.

The second column of a table is read if its heading is "rlcore". Its code spans are settings (``section.key``, or ``section.key = value``),
flags (``-tbs 64``) or commands (``rlcore resume RUN``). A dry run reads the values of one cell together.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
from rlcore_plugin_adapters import trl_names

import rlcore
from rlcore.api import Score
from rlcore.config.run_config import RunConfig
from rlcore.config.setting_table import core_settings
from rlcore.contracts.specs import CommandSpec
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import RunTester

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted((DOCS / "coming_from").glob("*.md"))}
SETTING = re.compile(r"(\w+(?:\.\w+)+)( = .+)?")
BASE = {
    "model": {"model": "org/name"},
    "data": {"dataset": "train.jsonl"},
    "eval": {"eval_dataset": {"t": "t.jsonl"}},
    "rewards": [{"name": "boxed"}],
}
FUNCTION = "def right(completions, **columns):\n    return [0.0]\n"


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables whose second column is headed ``rlcore``."""
    found = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        found += lines[2:] if len(lines[0]) > 1 and lines[0][1] == "rlcore" else []
    return found


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


CELLS = sorted({row[1] for text in PAGES.values() for row in rows(text) if spans(row[1])})


def block(page: str, name: str) -> str:
    """The text of the block of a page that is marked with this name."""
    found = re.search(rf"<!-- test: {re.escape(name)} -->\n```\w*\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page} has no block {name}"
    return found[1]


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    for key, value in more.items():
        if key == "rewards":
            base["rewards"] = [merged(dict(base["rewards"][0]), value)]
        else:
            base[key] = merged(dict(base.get(key, {})), value) if isinstance(value, dict) and isinstance(base.get(key, {}), dict) else value
    return base


def project(folder: Path) -> RunTester:
    made = RunTester(folder, in_process=True)
    made.write("my_rewards.py", FUNCTION)
    for name in ("tools.json", "template.jinja"):
        made.write(name, "[]")
    return made


@pytest.mark.full
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_of_a_table_is_accepted(cell: str, tmp_path: Path) -> None:
    config: dict[str, Any] = {**BASE}
    flags: list[str] = []
    for span in spans(cell):
        if span.startswith("rlcore "):
            names = {spec.name for spec in Registry.discover().specs("command") if isinstance(spec, CommandSpec)}
            assert span.split()[1] in names, span
        elif span.startswith("-"):
            flags += span.split()
        else:
            found = SETTING.fullmatch(span)
            assert found is not None, f"{span} is neither a setting nor a flag"
            assert found[2] or found[1] in core_settings() or found[1] in IN_REWARDS, f"rlcore has no setting {span}"
            config = merged(config, tomllib.loads(span)) if found[2] else config
    made = project(tmp_path)
    made.write("run.toml", tomli_w.dumps(config))
    made.run("train", "run.toml", *flags, "--dry-run", "--json").assert_ok()


IN_REWARDS = {"rewards.name", "rewards.weight", "rewards.deadline"}


@pytest.mark.parametrize("page", PAGES)
def test_run_toml_and_the_command_pass_a_dry_run(page: str, tmp_path: Path) -> None:
    made = project(tmp_path)
    made.write("run.toml", block(page, "run.toml"))
    for name in re.findall(r"<!-- test: (\w+\.py) -->", PAGES[page]):
        made.write(name, block(page, name))
    for command in re.findall(r"^rlcore (train .*?)$", re.sub(r"\\\n\s*", "", block(page, "command")), re.MULTILINE):
        plan = made.run(*command.partition("  #")[0].split(), "--dry-run", "--json").assert_ok().json
        assert not [note for note in plan["notes"] if "do not apply" in note]
        places = [
            item["what"] for item in plan["missing"] if not re.match(r"inference backend vllm|data set|\d+ devices?|device", item["what"])
        ]
        assert places == [], places


@pytest.mark.parametrize("page", PAGES)
def test_scripts_parse(page: str) -> None:
    for text in re.findall(r"^```python\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE):
        ast.parse(text)


def test_every_name_that_rlcore_train_knows_of_trl_is_on_the_page() -> None:
    known = {*trl_names._SAME, *trl_names._SPECIAL, *trl_names._INSTEAD} - {"args", "max_prompt_length"}
    named = {name for row in rows(PAGES["trl"]) for name in re.findall(r"\w+", " ".join(spans("".join(row))))}
    assert known - named == set()


def test_every_flag_of_colossalchat_is_a_spelling_of_the_setting_beside_it() -> None:
    of_rlcore = {**core_settings(), "rewards.name": core_settings()["rewards"]}
    section = PAGES["colossalchat"].partition("## Flag by flag")[2].partition("In ColossalChat, the following settings")[0]
    for theirs, ours, *_ in rows(section):
        known = {flag for span in spans(ours) for flag in of_rlcore[span.partition(" = ")[0]].spellings}
        assert set(spans(theirs)) <= known, theirs
    assert len(rows(section)) == 37


def named(page: str, name: str, monkeypatch: pytest.MonkeyPatch, **modules: Any) -> dict[str, Any]:
    """The names that a program of a page leaves behind, if ``modules`` stand for what it imports."""
    for module, content in modules.items():
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**content))
    found: dict[str, Any] = {"__name__": "a_program"}
    exec(block(page, name), found)
    return found


def test_the_two_programs_for_trl_and_its_run_toml_ask_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    right = named("trl", "my_rewards.py", monkeypatch)["right"]

    def trainer(*, args: dict[str, Any], **given: Any) -> SimpleNamespace:
        asked.append(given | args)
        return SimpleNamespace(train=lambda: None)

    trl = {"GRPOConfig": dict, "GRPOTrainer": trainer}
    data = {"load_dataset": lambda name, split: f"hf:{name}:{split}"}
    named("trl", "theirs.py", monkeypatch, trl=trl, datasets=data, my_rewards={"right": right})
    monkeypatch.setattr(rlcore, "train", lambda **given: asked.append(given))
    named("trl", "ours.py", monkeypatch)
    config = tomllib.loads(block("trl", "run.toml"))
    same = {"model": config["model"]["model"], "dataset": config["data"]["dataset"], "reward": right, **config["sampling"]}
    same |= {name: config["training"][name] for name in ("train_batch_size", "learning_rate")} | config["log"]
    theirs, ours = asked
    assert trl_names.translated({name: value for name, value in theirs.items() if name not in ("output_dir", "num_train_epochs")}) == same
    assert trl_names.translated(ours) == same
    assert (theirs["output_dir"], theirs["num_train_epochs"]) == (RunConfig().run.run_dir, RunConfig().run.num_episodes)


def test_the_reward_functions_of_the_pages_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    right = named("trl", "my_rewards.py", monkeypatch)["right"]
    said = [[{"role": "assistant", "content": rf"It is \boxed{{{answer}}}."}] for answer in (3, 4)]
    assert right(completions=said, solution=["$3$", "3"]) == [1.0, 0.0]
    assert right(completions=[[{"role": "assistant", "content": "3"}]], solution=["3"]) == [0.0]
    score = named("verl", "my_rewards.py", monkeypatch)["compute_score"]
    assert (score("gsm8k", "so #### 1,100", "1100"), score("gsm8k", "1100", "110")) == (1.0, 0.0)
    judge = named("openrlhf", "my_rewards.py", monkeypatch)["right"]
    items = [SimpleNamespace(text=text, columns={"label": "7"}) for text in ("Answer: 7", "Answer: 8")]
    assert [judge(item) for item in items] == [Score(value=1.0, accuracy=1.0), Score(value=0.0, accuracy=0.0)]
