"""The pool, with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from rlcore_gateway.pool import WorkerPool
from rlcore_gateway.worker_lines import EpisodeEnd
from rlcore_gateway.worker_process import WorkerCommand

from rlcore.api import RunError

LINES = "import json, os, signal, subprocess, sys, time\nfor line in sys.stdin:\n    said = json.loads(line)\n"
ECHO = (
    LINES
    + """    if "cancel" in said:
        continue
    what = said["row"].get("do")
    if what == "exit":
        print("no more", file=sys.stderr)
        sys.exit(3)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "child":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        print(json.dumps({"episode": said["episode"], "extra": {"child": child.pid, "pid": os.getpid()}}), flush=True)
        continue
    if what == "write":
        print(said["row"]["text"].replace("EPISODE", said["episode"]), flush=True)
        continue
    print(json.dumps({"episode": said["episode"], "reward": 1.5, "extra": {"pid": os.getpid()}}), flush=True)
"""
)


def played(
    scenario: Callable[[WorkerPool], Awaitable[Any]],
    program: str = ECHO,
    *,
    workers: int = 2,
    episodes: int = 1,
    called: bool = True,
    said: list[str] | None = None,
) -> Any:
    """Run a scenario with a pool, and check that nothing of the pool is left."""

    async def run() -> Any:
        command = WorkerCommand(argv=(sys.executable, "-u", "-c", program), episodes=episodes)
        say = [].append if said is None else said.append
        pool = WorkerPool(command, workers=workers, called=lambda episode: called, say=say, cancel_seconds=0.5)
        try:
            return await scenario(pool)
        finally:
            await pool.close()
            assert not [child for child in psutil.Process().children() if "-c" in child.cmdline() and program in child.cmdline()]

    return asyncio.run(run())


def row(**columns: Any) -> dict[str, Any]:
    return {"row": columns, "base_url": "http://127.0.0.1:1/v1", "key": "k", "model": "policy"}


def test_an_episode_is_played_and_its_process_plays_the_next_one() -> None:
    async def scenario(pool: WorkerPool) -> list[EpisodeEnd]:
        return [await pool.play(name, row(), 30.0) for name in "ab"]

    first, second = played(scenario)
    assert first.outcome == "ok"
    assert first.reward == 1.5
    assert first.extra == second.extra


def test_processes_start_on_demand_up_to_the_number() -> None:
    async def scenario(pool: WorkerPool) -> set[int]:
        ends = await asyncio.gather(*(pool.play(f"e{number}", row(), 30.0) for number in range(12)))
        assert len(pool.workers) == 2
        return {end.extra["pid"] for end in ends}

    assert len(played(scenario)) == 2


def test_one_process_plays_many_episodes() -> None:
    async def scenario(pool: WorkerPool) -> int:
        await asyncio.gather(*(pool.play(f"e{number}", row(), 30.0) for number in range(6)))
        return len(pool.workers)

    assert played(scenario, episodes=6) == 1


@pytest.mark.parametrize(
    ("do", "outcome", "words"),
    [
        ("exit", "crashed", "ended with exit code 3: no more"),
        ("kill", "lost", "killed by signal 9"),
        ("stop", "timeout", "had not ended after 0.3 s"),
    ],
)
def test_a_process_that_fails_ends_its_episode_and_is_replaced(do: str, outcome: str, words: str) -> None:
    async def scenario(pool: WorkerPool) -> EpisodeEnd:
        end = await pool.play("bad", row(do=do), 0.3 if do == "stop" else 30.0)
        assert (await pool.play("good", row(), 30.0)).outcome == "ok"
        return end

    end = played(scenario, workers=1)
    assert end.outcome == outcome
    assert words in end.reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", "a line that is not JSON"),
        ("[1]", 'not an object with "episode"'),
        ('{"episode": "EPISODE", "reward": NaN}', '"reward" in the answer of the environment is nan; it must be a finite number'),
        ('{"episode": "EPISODE", "reward": "1"}', "it must be a finite number"),
        ('{"episode": "EPISODE", "reward": true}', "it must be a finite number"),
        ('{"episode": "EPISODE", "outcome": "fine"}', "it must be one of ok, timeout, crashed, environment"),
        ('{"episode": "EPISODE", "score": 1}', 'unknown field "score"'),
        ('{"episode": "EPISODE", "calls": "a"}', "it must be a list of call ids"),
        ('{"episode": "EPISODE", "turn_rewards": {"a": Infinity}}', "it must be an object of finite numbers by call id"),
        ('{"episode": "another"}', "answered episode 'another', which is not open in this process"),
    ],
)
def test_a_wrong_line_is_a_failure_of_the_environment(text: str, words: str) -> None:
    async def scenario(pool: WorkerPool) -> EpisodeEnd:
        end = await pool.play("bad", row(do="write", text=text), 30.0)
        assert (await pool.play("good", row(), 30.0)).outcome == "ok"
        return end

    end = played(scenario, workers=1)
    assert end.outcome == "environment"
    assert words in end.reason


def test_an_episode_that_is_answered_twice_is_a_failure_of_the_environment() -> None:
    twice = (
        LINES
        + """    if "row" in said:
        answer = json.dumps({"episode": said["row"].get("name", said["episode"])})
        print(answer, answer, sep="\\n", flush=True)
"""
    )

    async def scenario(pool: WorkerPool) -> EpisodeEnd:
        waiting = asyncio.create_task(pool.play("waiting", row(name="answered"), 30.0))
        answered = asyncio.create_task(pool.play("answered", row(), 30.0))
        await asyncio.wait([answered])
        return await waiting

    end = played(scenario, twice, workers=1, episodes=2)
    assert end.outcome == "environment"
    assert "answered episode 'answered', which is not open in this process; it must answer each once" in end.reason


def test_a_process_that_ignores_a_cancelled_episode_is_killed_and_its_other_episodes_are_lost() -> None:
    async def scenario(pool: WorkerPool) -> tuple[EpisodeEnd, EpisodeEnd]:
        other = asyncio.create_task(pool.play("other", row(do="stop"), 30.0))
        await asyncio.sleep(0)
        late = await pool.play("late", row(), 0.5)
        return late, await other

    late, other = played(scenario, workers=1, episodes=2)
    assert late.outcome == "timeout"
    assert other.outcome == "lost"


def test_a_cancelled_episode_ends_in_its_process_and_frees_it() -> None:
    slow = LINES + "    episode = said.get('cancel')\n    if episode: print(json.dumps({'episode': episode}), flush=True)\n"

    async def scenario(pool: WorkerPool) -> int:
        task = asyncio.create_task(pool.play("cut", row(), 30.0))
        while not pool.workers:
            await asyncio.sleep(0.01)
        (before,) = pool.workers
        task.cancel()
        await asyncio.wait([task])
        following = asyncio.create_task(pool.play("next", row(), 0.3))
        assert (await following).outcome == "timeout"
        assert pool.workers == [before]
        return 0

    played(scenario, slow, workers=1)


def test_children_of_a_killed_process_end_with_it() -> None:
    async def scenario(pool: WorkerPool) -> int:
        end = await pool.play("parent", row(do="child"), 30.0)
        child: int = end.extra["child"]
        assert psutil.pid_exists(child)
        os.kill(end.extra["pid"], signal.SIGKILL)
        return child

    child = played(scenario)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_missing_program_ends_the_run(tmp_path: Path) -> None:
    async def run() -> None:
        pool = WorkerPool(WorkerCommand(argv=(str(tmp_path / "nothing"),)), workers=1, called=lambda episode: True, say=print)
        with pytest.raises(RunError, match="nothing' cannot be started: No such file"):
            await pool.play("a", row(), 5.0)
        await pool.close()

    asyncio.run(run())


def test_a_program_that_always_ends_at_once_ends_the_run() -> None:
    async def scenario(pool: WorkerPool) -> list[str]:
        seen = [(await pool.play(f"e{number}", row(), 30.0)).outcome for number in range(2)]
        with pytest.raises(RunError, match=r"ended with exit code 1: .*no_such_module.*3 processes in a row"):
            await pool.play("last", row(), 30.0)
        return seen

    assert played(scenario, "import no_such_module", called=False) == ["crashed", "crashed"]


def test_a_program_may_play_one_episode_and_end() -> None:
    once = "import json, sys\nsaid = json.loads(sys.stdin.readline())\nprint(json.dumps({'episode': said['episode'], 'reward': 2}))\n"

    async def scenario(pool: WorkerPool) -> list[EpisodeEnd]:
        return await asyncio.gather(*(pool.play(f"e{number}", row(), 30.0) for number in range(6)))

    assert {end.reward for end in played(scenario, once, called=False)} == {2}
