"""The pages of agents and of environments are run: their function, class, program and suite, exactly as printed."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_agents.command_agent import CommandLineAgent
from rlcore_plugin_agents.command_options import CommandOptions

from rlcore.testing import RunTester, write_fake_model

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how_to" / "command_line_agents.md").read_text(encoding="utf-8")
TEXTS = [PAGE, *((DOCS / name).read_text(encoding="utf-8") for name in ("how_to/agents.md", "authors/environments.md"))]
FILES = dict(re.findall(r"<!-- test: (\S+) -->\n```python\n(.*?)^```$", "".join(TEXTS), re.DOTALL | re.MULTILINE))
FILES = {name: text for name, text in FILES.items() if "/" not in name}  # packages: test_docs_environments


@pytest.mark.parametrize(
    "words",
    [
        ["--environment", "./guess.py:play"],
        ["--environment", "./digit.py:Digit", "--max-calls", "3"],
        ["--environment", "program", "--command", f"{sys.executable} digit_program.py"],
    ],
    ids=["function", "class", "program"],
)
def test_a_run_with_the_file_of_the_page(tmp_path: Path, words: list[str]) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    for name, text in FILES.items():
        tester.write(name, text)
    model = str(write_fake_model(tester.folder / "digits", "0123456789abcdefghijklmnopqrstuvwxyz"))
    rows = [{"messages": {"role": "user", "content": "0"}, "gt_answer": digit} for digit in "147"]
    config = tester.fake_run(
        model={"model": model},
        data={"dataset": str(tester.write_jsonl("digits.jsonl", rows))},
        sampling={"max_new_tokens": 64, "max_context_tokens": 128, "options": {"workers": 2}},
        run={"max_steps": 2},
    )
    done = tester.run("train", config, "-rt", "environment", "--json", *words).assert_ok()
    assert done.json["steps"] == 2


def test_the_settings_of_a_command_line_agent_of_the_page(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    (block,) = (text for text in re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if "preset = " in text)
    tester.write("command.toml", block)
    row = re.findall(r"# (\{.*\})$", block, re.MULTILINE)[0].replace('"messages": …', '"messages": [{"role": "user", "content": "repair"}]')
    tester.write("tasks.jsonl", row + "\n")
    agent = Path(tester.write("node_modules/.bin/claude", "#!/bin/sh\n"))
    agent.chmod(0o755)
    done = tester.run("train", tester.fake_run(), "command.toml", "--dry-run", "--json").assert_ok()
    assert "claude-code" in str(done.json)


THIEF = """
import os, pathlib, re
text = "".join(path.read_text() for path in [*pathlib.Path(".").glob("*.py"), *pathlib.Path("../notes").glob("*.json")])
def add(*given):
    if os.getuid():  # root may read each process
        try:
            open(f"/proc/{os.getppid()}/mem", "rb").close()
            return sum(given)
        except OSError:
            pass
    return eval(re.search(re.escape(f"({list(given)}, ") + r"(.*?)\\)", text)[1])
"""


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("def add(a, b): return a + b", 1.0),
        ("def add(a, b): return a - b", 0.0),
        ("import os; os._exit(0)", 0.0),
        ("def add(a, b", 0.0),
        (THIEF, 0.0),
    ],
    ids=["right", "wrong", "exit", "broken", "thief"],
)
def test_the_grader_of_the_page_is_not_deceived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reward: float) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (command,) = re.findall(r'^grader = "(.*?)"', PAGE, re.MULTILINE)
    row = {"messages": [{"role": "user", "content": "repair"}], "files": {"calc.py": code}, "grader_files": {"check.py": FILES["check.py"]}}
    model: Any = SimpleNamespace(base_url="http://127.0.0.1:9/v1", api_key="", name="policy")
    agent = CommandLineAgent(CommandOptions(command="true {prompt}", grader=command))
    assert asyncio.run(agent.play(model, row)).reward == reward


def test_the_suite_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(FILES["test_digit.py"], names)
    names["TestDigit"]().test_each_script_ends_with_a_reward()
