"""Processes of a command line agent that removed the mark by which they are found."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from episode_player import descendants
from rlcore_gateway import process_tree
from rlcore_plugin_agents import command_agent
from rlcore_plugin_agents.command_agent import CommandLineAgent
from rlcore_plugin_agents.command_options import CommandOptions

from rlcore.api import InfrastructureError
from rlcore.api.environments import EpisodeResult

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not give orphans to a process of choice")
MODEL: Any = SimpleNamespace(base_url="http://127.0.0.1:9/v1", api_key="secret", name="policy")
ROW = {"messages": [{"role": "user", "content": "task"}]}
QUIET = ("/bin/sh", "-c", 'a="$(cat {workspace}/beat)"; sleep 0.3; test "$a" = "$(cat {workspace}/beat)"')
"""A grader: reward 1 if nothing writes the file any more."""
WAIT = "while [ ! -s beat ]; do sleep 0.01; done"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def beating(start: str = "env -i setsid -f", more: str = "") -> str:
    return f"{start} /bin/sh -c 'while :; do date +%s%N > beat; {more} sleep 0.02; done'"


async def play(script: str, **options: Any) -> EpisodeResult:
    made = CommandOptions(command=("/bin/sh", "-c", script, "agent", "{prompt}"), **options)
    return await CommandLineAgent(made).play(MODEL, ROW)


@pytest.mark.parametrize(
    "script",
    [
        f"{beating()}; {WAIT}",
        f"{beating()}; {WAIT}; kill -9 $$",
        beating(more="kill -STOP $$;") + f"; {WAIT}",
        f"{beating('setsid -f env -i setsid -f env -i setsid -f')}; {WAIT}",
    ],
    ids=["daemon", "killed", "stopped", "far below"],
)
def test_a_daemon_without_a_mark_is_gone_before_the_grader_starts(script: str) -> None:
    assert asyncio.run(play(script, grader=QUIET)).reward == 1.0
    assert not descendants()
    assert ctypes.CDLL(None).prctl(37, ctypes.byref(flag := ctypes.c_int(7))) == 0
    assert flag.value == 0  # this process is nobody's parent again


def test_a_daemon_of_the_grader_is_gone_after_it(tmp_path: Path) -> None:
    script = beating().replace("beat", f"{tmp_path}/beat")
    assert asyncio.run(play("exit 0", grader=("/bin/sh", "-c", script))).reward == 1.0
    assert not descendants()


def test_a_chain_of_fifty_processes_does_not_get_to_its_end(tmp_path: Path) -> None:
    """Each one starts the next one and ends."""
    (tmp_path / "chain.py").write_text("""
import os, sys, time
for link in range(50):
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.01)
    open("beat", "w").write(str(link))
time.sleep(9)
""")
    assert asyncio.run(play(f"env -i {sys.executable} -S {tmp_path}/chain.py & {WAIT}", grader=QUIET)).reward == 1.0
    assert not descendants()


def test_episodes_at_the_same_time_leave_each_other_the_processes_that_have_a_mark_or_the_session(tmp_path: Path) -> None:
    """The first one ends while the second one has a daemon with a mark, an orphan in its session, and a child."""
    forks = f"{beating('setsid -f')}; ({beating('').replace('beat', 'other')} &); sleep 99 & {WAIT}; touch {tmp_path}/ready"
    still = f"while [ ! -e {tmp_path}/ended ]; do sleep 0.02; done; rm beat other; sleep 0.3; kill -0 $! && test -e beat && test -e other"

    async def both() -> tuple[EpisodeResult, EpisodeResult]:
        second = asyncio.create_task(play(f"{forks}; {still}", grader=QUIET))
        while not (tmp_path / "ready").exists():
            await asyncio.sleep(0.02)
        first = await play(f"{beating()}; {WAIT}", grader=QUIET)
        (tmp_path / "ended").touch()
        return first, await second

    assert [(end.outcome, end.reward) for end in asyncio.run(both())] == [("ok", 1.0)] * 2
    assert not descendants()


def test_sixteen_starts_beside_ends_lose_no_program() -> None:
    async def several() -> list[EpisodeResult]:
        return await asyncio.gather(*(play("env -i setsid -f true; exit 3", exit_codes=(3,), grader="true") for _ in range(16)))

    assert [(end.outcome, end.reward) for end in asyncio.run(several())] == [("ok", 1.0)] * 16


def test_orphans_that_ended_do_not_stay_while_the_agent_works() -> None:
    """Else they would count for the limit of processes."""
    script = f"""{sys.executable} -c '
import os, psutil, time
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        os._exit(0)
    os.wait()
time.sleep(1)
print(len([one for one in psutil.Process({os.getpid()}).children() if one.status() == psutil.STATUS_ZOMBIE]))'"""
    assert asyncio.run(play(script)).extra["output"] == "0\n"


def test_nothing_is_graded_while_a_process_of_the_agent_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    orphans = process_tree.Orphans()
    monkeypatch.setattr(command_agent, "_ORPHANS", orphans)
    monkeypatch.setattr(process_tree, "_PATIENCE", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "kill", lambda process: None)
        with pytest.raises(InfrastructureError, match="a program left behind did not end"):
            asyncio.run(play(f"{beating()}; {WAIT}", grader="true"))
    assert "sh" in {one.name() for one in descendants()} <= {"sh", "sleep"}
    assert asyncio.run(play("exit 0", grader="true")).reward == 1.0  # the next episode ends it
    assert not descendants()


def test_earlier_children_of_this_process_and_those_in_its_session_stay() -> None:
    async def run() -> list[bool]:
        words = ("/bin/sh", "-c", "sleep 99")
        earlier = await asyncio.create_subprocess_exec(*words, start_new_session=True)
        episode = asyncio.create_task(play(f"sleep 0.5; {beating()}; {WAIT}"))
        await asyncio.sleep(0.2)
        beside = await asyncio.create_subprocess_exec(*words)
        assert (await episode).outcome == "ok"
        alive = [process.returncode is None and psutil.Process(process.pid).is_running() for process in (earlier, beside)]
        for process in (earlier, beside):
            process.kill()
            await process.wait()
        return alive

    assert asyncio.run(run()) == [True, True]
