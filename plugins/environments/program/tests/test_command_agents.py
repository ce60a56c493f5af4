"""The environment ``command``: agents that know nothing of rlcore, in folders of their own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil
import pytest
from episode_player import EpisodePlayer, descendants
from pydantic import ValidationError
from rlcore_plugin_agents.agent_files import episode_folders, remove_left_folders, write_files
from rlcore_plugin_agents.command_agent import CommandLineAgent
from rlcore_plugin_agents.command_options import CommandOptions
from rlcore_plugin_agents.command_presets import PRESETS

from rlcore.api import InfrastructureError
from rlcore.api.environments import EpisodeResult
from rlcore.testing import EnvironmentSuite

MESSAGES = """
import json, os, pathlib, sys, urllib.request
body = {"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 9, "messages": [{"role": "user", "content": sys.argv[1]}]}
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
    text = "".join(part.get("text", "") for part in json.load(answer)["content"])
pathlib.Path("answer.txt").write_text(text)
"""
CHAT = """
import json, os, pathlib, sys, urllib.request
body = {"model": os.environ["OPENAI_MODEL"], "max_tokens": 9, "messages": [{"role": "user", "content": sys.stdin.read()}]}
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
    text = json.load(answer)["choices"][0]["message"]["content"]
pathlib.Path("answer.txt").write_text(text or "")
"""
IN_MESSAGES = {
    "command": (sys.executable, "-c", MESSAGES, "{prompt}"),
    "env": {"ANTHROPIC_BASE_URL": "{root_url}", "ANTHROPIC_API_KEY": "{key}", "ANTHROPIC_MODEL": "{model}"},
}
IN_CHAT = {
    "command": (sys.executable, "-c", CHAT),
    "stdin": "{prompt}",
    "env": {"OPENAI_BASE_URL": "{base_url}", "OPENAI_API_KEY": "{key}", "OPENAI_MODEL": "{model}"},
}
GRADER = (
    sys.executable,
    "-c",
    "import pathlib, sys; sys.exit(pathlib.Path('answer.txt').read_text() != pathlib.Path('right.txt').read_text())",
)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the episodes a folder for temporary files, in which nothing may stay but the locks."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    left = [path.name for path in (tmp_path / "tmp").glob("rlcore-agents-*/*")]
    assert all(name.endswith(".lock") for name in left), left


class TestAnAgentInMessages(EnvironmentSuite):
    environment = "command"
    options: ClassVar = {**IN_MESSAGES, "grader": GRADER}
    rows = ({"files": {"right.txt": "a"}},)
    rewards = (1.0, 0.0)


def test_an_agent_in_chat_completions_whose_budget_is_used_up_is_answered(tmp_path: Path) -> None:
    options = CommandOptions(**IN_CHAT, grader=("/bin/sh", "-c", "test -f answer.txt"))
    twice = options.model_copy(update={"command": (sys.executable, "-c", CHAT.replace('"max_tokens": 9', '"max_tokens": 2') + CHAT)})
    with EpisodePlayer(tmp_path, "command", twice, max_calls=1) as player:
        ((rollout, score),) = player.play({})
    assert (rollout.extra["outcome"], score.value) == ("ok", 1.0)
    assert (rollout.extra["calls"], rollout.extra["canned_answers"]) == (1, 1)
    assert "used up" in rollout.extra["files"]["answer.txt"]
    assert not descendants()


# --- without a policy --------------------------------------------------------------------------------------------------

MODEL: Any = SimpleNamespace(base_url="http://127.0.0.1:9/v1", api_key="secret", name="policy")


def play(script: str, row: dict[str, Any] | None = None, **options: Any) -> EpisodeResult:
    """Play an episode of a script of the shell."""
    made = CommandOptions(command=("/bin/sh", "-c", script, "agent", "{prompt}"), **options)
    return asyncio.run(CommandLineAgent(made).play(MODEL, {"messages": [{"role": "user", "content": "task"}], **(row or {})}))


def test_the_agent_has_a_workspace_of_the_row_and_no_variables_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    (tmp_path / "base" / "one").mkdir(parents=True)
    (tmp_path / "base" / "one" / "kept.txt").write_text("kept")
    script = (
        'cat kept.txt sub/new.txt; sub/run; echo "$1"; pwd; env; cat ~/.settings; rm kept.txt; printf more >> sub/new.txt; echo x > ~/out'
    )
    row = {"folder": "one", "files": {"sub/new.txt": "new", "sub/run": "#!/bin/sh\necho ran", "missing": None}}
    end = play(script, row, folder=tmp_path / "base", env={"URL": "{base_url}"}, home_files={".settings": '{"key": "{key}", "x": {other}}'})
    assert (end.outcome, end.reward) == ("ok", None)
    words = end.extra["output"].split("\n")
    assert words[:2] == ["keptnewran", "task"]
    assert words[2].endswith("/0/workspace")
    assert "URL=http://127.0.0.1:9/v1" in words
    assert not any(word.startswith(("SECRET", "VIRTUAL_ENV")) for word in words)
    assert words[-1] == '{"key": "secret", "x": {other}}'
    assert end.extra["files"] == {"sub/new.txt": "newmore", "kept.txt": None}
    assert (tmp_path / "base" / "one" / "kept.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("script", "options", "end"),
    [
        ("exit 0", {"grader": "true"}, ("ok", 1.0)),
        ("exit 0", {"grader": "false"}, ("ok", 0.0)),
        ("exit 0", {"grader": ("/bin/sh", "-c", "exit 2")}, ("ok", 0.0)),
        ("exit 0", {"grader": ("/bin/sh", "-c", "exit 101"), "grader_zero_codes": (1, 101)}, ("ok", 0.0)),
        ("echo exit 0 > it.sh", {"grader": "sh it.sh"}, ("ok", 1.0)),
        ("echo 1 > it.py", {"grader": ("python3", "-IB", "{workspace}/it.py")}, ("ok", 1.0)),
        (
            "echo right > it",
            {"grader": ("/bin/sh", "-c", "echo graded; test $(cat it) = right && echo 0.25"), "grade": "last_line"},
            ("ok", 0.25),
        ),
        ("echo said", {"grader": ("grep", "said", "{output}")}, ("ok", 1.0)),
        ("exit 0", {"grader": ("grep", '"task"', "{row}")}, ("ok", 1.0)),
        ("exit 3", {"grader": "true"}, ("crashed", 1.0)),
        ("exit 3", {"grader": "true", "exit_codes": (0, 3)}, ("ok", 1.0)),
        ("kill -9 $$", {"grader": "no-such-program"}, ("crashed", None)),
        ("sleep 99", {"grader": "true", "agent_seconds": 0.5}, ("timeout", 1.0)),
        ("kill -STOP $$", {"grader": "true", "agent_seconds": 0.5}, ("timeout", 1.0)),
        ("exit 0", {"grader": "sleep 99", "grader_seconds": 0.5, "on_grader_timeout": "zero"}, ("ok", 0.0)),
        ("cd ..; mv workspace w; ln -s / workspace", {"grader": "true"}, ("crashed", None)),
        ("chmod 0 .; exit 0", {"grader": "true"}, ("ok", 1.0)),
    ],
)
def test_the_end_of_an_episode(script: str, options: dict[str, Any], end: tuple[str, float | None]) -> None:
    found = play(script, **options)
    assert (found.outcome, found.reward) == end
    assert bool(found.reason) == (found.outcome != "ok")


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("there is no program 'no-such-program'", {"grader": "no-such-program"}),
        ("the grader /bin/sh was killed by signal 9", {"grader": ("/bin/sh", "-c", "kill -9 $$")}),
        (r"ended with exit code 127.*; reward 0 has exit code 1, 2, 5 \(grader_zero", {"grader": ("/bin/sh", "-c", "no-such-program")}),
        ("ended with exit code 2;", {"grader": ("/bin/sh", "-c", "exit 2"), "grader_zero_codes": (1,)}),
        ("grader python3 -I none.py names a script or module that does not exist", {"grader": "python3 -I none.py"}),
        ("names a script or module that does not exist", {"grader": "python3.11 /none/none.py", "grade": "last_line"}),
        ("names a script or module that does not exist", {"grader": "sh none.sh"}),
        ("names a script or module that does not exist", {"grader": "python3 -m pytst -q"}),
        ("names a script or module that does not exist", {"grader": "perl {workspace}/none.pl"}),
        ("the grader sleep took too long", {"grader": "sleep 99", "grader_seconds": 0.5}),
        ("its last line is 'nan'", {"grader": "echo nan", "grade": "last_line"}),
        (
            "must end with exit code 0 and a line that is a number, and its last line is '1'",
            {"grader": ("/bin/sh", "-c", "echo 1; exit 1"), "grade": "last_line"},
        ),
        ("its last line is ''", {"grader": "true", "grade": "last_line"}),
    ],
)
def test_a_grader_that_fails_is_a_failure_of_the_environment(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(InfrastructureError, match=message):
        play("exit 0", **options)


@pytest.mark.parametrize(
    ("message", "row"),
    [
        ("cannot be made: .*missing", {"folder": "missing"}),
        ("column files is a list", {"files": ["a"]}),
        (r"column files has the entry '\.\./a'", {"files": {"../a": ""}}),
        ("column files has the entry '/a'", {"files": {"/a": ""}}),
        ("column files has the entry 'a'", {"files": {"a": 1}}),
        ("no message of the user", {"messages": []}),
    ],
)
def test_a_row_without_a_workspace_is_a_failure_of_the_environment(message: str, row: dict[str, Any]) -> None:
    with pytest.raises(InfrastructureError, match=message):
        play("exit 0", row)


def test_files_of_the_grader_come_after_the_agent_and_not_through_its_links(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    script = (
        f"test ! -e tests || exit 9; ln -s {tmp_path} tests; ln -s {tmp_path}/precious there; rm -r ../notes; ln -s {tmp_path} ../notes"
    )
    row = {"grader_files": {"tests/precious": "echo 0.5", "there": "x"}}
    end = play(script, row, grader="sh tests/precious", grade="last_line")
    assert (end.outcome, end.reward) == ("ok", 0.5)
    assert (tmp_path / "precious").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "tmp"]


def test_what_a_grader_says_is_no_file_with_a_name() -> None:
    """Else the code that it grades could write its reward there by name."""
    assert play("exit 0", grader=("/bin/sh", "-c", "readlink /proc/$$/fd/1 | grep -c deleted"), grade="last_line").reward == 1.0
    assert play("exit 0", grader=("/bin/sh", "-c", 'ls "${0%/*}" | grep -q std', "{row}")).reward == 0.0


def test_a_module_that_the_agent_writes_may_be_the_grader() -> None:
    assert play("echo 'import sys; sys.exit(0)' > checks.py", grader="python3 -m checks").reward == 1.0
    assert play("mkdir checks; echo 'raise SystemExit(1)' > checks/__main__.py", grader="python3 -m checks").reward == 0.0


@pytest.mark.parametrize("grader", ["python3 tests.py", "bash tests.py", "perl {workspace}/tests.py"])
def test_an_agent_that_removes_the_script_of_the_grader_gets_0(grader: str) -> None:
    assert play("rm tests.py", {"files": {"tests.py": "exit()"}}, grader=grader).reward == 0.0
    with pytest.raises(InfrastructureError, match="its last line is ''"):
        play("rm tests.py", {"files": {"tests.py": "exit()"}}, grader=grader, grade="last_line")


def test_changed_files_beyond_the_limit_and_those_without_text_are_counted() -> None:
    script = r"head -c 2000 /dev/zero | tr '\0' x > big; printf '\377' > binary; mkfifo pipe; ln -s /etc/passwd link; echo y > small"
    end = play(script, files_kb=1)
    assert (end.extra["files"], end.extra["files_left_out"]) == ({"small": "y\n"}, 2)
    assert "files" not in play(script, files_kb=0).extra


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(99)
"""


@pytest.mark.parametrize("ending", ["exit 0", "kill -9 $$", "kill -STOP $$", "sleep 99"])
def test_nothing_of_an_agent_is_left_not_even_if_it_is_cancelled(ending: str, tmp_path: Path) -> None:
    (tmp_path / "daemon.py").write_text(DAEMON)
    pid = tmp_path / "pid"
    script = f"{sys.executable} {tmp_path}/daemon.py {pid}; while [ ! -s {pid} ]; do sleep 0.05; done; touch {tmp_path}/ready; {ending}"
    made = CommandOptions(command=("/bin/sh", "-c", script, "{prompt}"))

    async def run() -> None:
        task = asyncio.create_task(CommandLineAgent(made).play(MODEL, {"messages": [{"role": "user", "content": "task"}]}))
        if not ending.startswith(("exit", "kill -9")):
            while not (tmp_path / "ready").exists():
                await asyncio.sleep(0.05)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.result().outcome == ("ok" if ending == "exit 0" else "crashed")

    asyncio.run(run())
    assert not psutil.pid_exists(int(pid.read_text())) or psutil.Process(int(pid.read_text())).status() == psutil.STATUS_ZOMBIE
    assert not descendants()


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one_and_no_folder_in_use(tmp_path: Path) -> None:
    with episode_folders() as first, episode_folders() as second:
        assert (first.root.name, second.root.name) == ("0", "1")
        write_files(first.workspace, {"a": "1"}, "it")
        with episode_folders() as third:
            assert third.root.name == "2"
        assert (first.workspace / "a").exists()
    (first.workspace / "locked").mkdir(parents=True)
    (first.workspace / "locked").chmod(0)
    with episode_folders() as again:
        assert again == first
        assert not list(again.workspace.iterdir())
        second.workspace.mkdir(parents=True)
        remove_left_folders()
        assert again.workspace.exists()
    assert not second.root.exists()


def test_a_killed_host_leaves_no_agent(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; sleep 99"
    with EpisodePlayer(tmp_path, "command", CommandOptions(command=("/bin/sh", "-c", script, "{prompt}"))) as player:
        player.begin([{}])
        player.step_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        agent = psutil.Process(int((tmp_path / "pid").read_text()))
        os.kill(agent.ppid(), signal.SIGKILL)
        gone, _ = psutil.wait_procs([agent], timeout=20)
        assert gone
    assert not descendants()
    remove_left_folders()  # as the next process does


def test_the_folders_of_processes_that_agents_stopped_are_removed_by_the_next_one(tmp_path: Path) -> None:
    def left() -> list[str]:
        return sorted(path.name for path in (tmp_path / "tmp").glob("rlcore-agents-*/*") if path.is_dir())

    stops = {"files": {"agent.sh": "kill -STOP $PPID; sleep 99"}}
    options = CommandOptions(**IN_CHAT | {"command": ("/bin/sh", "agent.sh")})
    with EpisodePlayer(tmp_path, "command", options, workers=2, deadline=8.0, error_budget=1.0) as player:
        assert [rollout.extra["outcome"] for rollout, _ in player.play(stops, stops)] == ["timeout"] * 2
        assert left() == ["0", "1"]
        ((rollout, _),) = player.play({"files": {"agent.sh": f"{sys.executable} chat.py", "chat.py": CHAT}})
        assert (rollout.extra["outcome"], left()) == ("ok", [])


def test_an_episode_that_is_cancelled_while_its_folder_is_copied_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copytree, begun = shutil.copytree, threading.Event()
    (tmp_path / "base").mkdir()
    agent = CommandLineAgent(CommandOptions(command="true {prompt}", folder=tmp_path / "base"))

    def slow(*arguments: Any, **words: Any) -> None:
        begun.set()
        time.sleep(0.5)
        copytree(*arguments, **words)

    monkeypatch.setattr(shutil, "copytree", slow)

    async def run() -> None:
        task = asyncio.create_task(agent.play(MODEL, {"messages": [{"role": "user", "content": "task"}]}))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())


def test_a_program_on_the_path_of_the_run_is_found_and_has_its_folder_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("of_mine", "#!/bin/sh\nhelper"), ("helper", "#!/bin/sh\nexit 0")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert play("true", grader="of_mine").reward == 1.0


# --- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_gives_the_task_and_the_key_in_its_own_dialect(name: str) -> None:
    agent = CommandOptions(preset=name, env={"MORE": "1"}).agent  # type: ignore[arg-type]
    assert "{prompt}" in " ".join(agent.command)
    assert "{key}" in agent.env.values()
    assert {"{base_url}", "{root_url}"} & {*agent.env.values()} or any("{base_url}" in text for text in agent.files.values())
    assert agent.env["MORE"] == "1"
    for path, text in agent.files.items():
        if path.endswith(".json"):
            json.loads(text)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("there is no command", {}),
        ("never receives its task", {"command": "true"}),
        ("never receives", {"preset": "codex", "command": "codex"}),
    ],
)
def test_an_agent_without_a_command_or_a_task_is_refused(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=message):
        CommandOptions(**options)
