"""A reward that forks and comes back twice, one that forges answers, a machine that refuses a process: each costs its own item at most."""

import os
from pathlib import Path

import pytest
from kit_rewards import entry, kill, misbehaving, results, task, wait_for

from rlcore.contracts.errors import PluginError
from rlcore.contracts.reward_interface import AsyncReward, Reward
from rlcore.contracts.types import Outcome, Score
from rlcore.rewards.pool import RewardPool
from rlcore.rewards.worker_process import WorkerProcess
from rlcore.rewards.worker_protocol import WorkerLimits
from tests.worker_pids import worker_pids


def forking(end):
    """Its child comes back by ``end`` long before the parent has the verdict; the parent says 7 and whose child it had."""

    def reward(item):
        import os
        import sys
        import time

        from rlcore.contracts.types import Score

        if item.text != "fork":
            return float(len(item.text))
        child = os.fork()
        if not child:
            if end == "exit":
                sys.exit()
            if end == "raise":
                raise ValueError("this is the child")
            return 1.0
        _, status = os.waitpid(child, 0)
        time.sleep(0.1)
        return Score(value=7.0, parts={"status": float(status)})

    return reward


@pytest.mark.parametrize("end", ["exit", "raise", "return"])
def test_a_child_that_a_reward_forked_never_answers(end, no_leak):
    with RewardPool([entry(forking(end))], workers=1) as pool:
        workers = worker_pids(pool)
        pool.submit(task(number, text) for number, text in enumerate(["a", "fork", "bb", "fork", "ccc"]))
        found = {result.task.task_id: result.scores[0] for result in results(pool, 5)}
        assert [found[number].value for number in range(5)] == [1.0, 7.0, 2.0, 7.0, 3.0]
        assert found[1].parts == {"status": 0.0}
        assert worker_pids(pool) == workers


def forking_open():
    class Forking(Reward):
        def open(self):
            if not os.fork():
                raise SystemExit
            os.wait()

        def score(self, item):
            return Score(value=1.0)

    return Forking


def forking_open_async():
    class Forking(AsyncReward):
        async def open_async(self):
            if not os.fork():
                raise SystemExit
            os.wait()

        async def score_async(self, item):
            return Score(value=1.0)

    return Forking


@pytest.mark.parametrize("target", [forking_open(), forking_open_async()], ids=["plain", "asynchronous"])
def test_a_child_forked_while_the_reward_opens_never_speaks(target, no_leak):
    with RewardPool([entry(target)], workers=1) as pool:
        pool.submit([task(0)])
        assert results(pool, 1)[0].scores[0].value == 1.0


def test_a_child_forked_by_an_asynchronous_reward_never_answers(no_leak):
    class Forking(AsyncReward):
        async def score_async(self, item):
            if item.text == "fork":
                if not os.fork():
                    raise SystemExit
                os.wait()
            return Score(value=float(len(item.text)))

    with RewardPool([entry(Forking)], workers=1) as pool:
        pool.submit(task(number, text) for number, text in enumerate(["a", "fork", "bb", "fork"]))
        found = {result.task.task_id: result.scores[0] for result in results(pool, 4)}
        assert [found[number].value for number in range(4)] == [1.0, 4.0, 2.0, 4.0]


def forge(task_id):
    """Writes an answer to every socket of this process."""
    import os
    import stat
    from pathlib import Path

    from rlcore.contracts.types import Score
    from rlcore.rewards.worker_protocol import Done, encode

    for path in Path("/proc/self/fd").iterdir():
        descriptor = int(path.name)
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and os.get_inheritable(descriptor) is False:
                os.write(descriptor, encode(Done(task_id=task_id, scores=(Score(value=99.0),))))
        except OSError:
            continue


def forger():
    def reward(item):
        if item.text == "forge":
            forge(10**6)
        return float(len(item.text))

    return reward


def forger_async():
    class Forger(AsyncReward):
        concurrency = 1

        async def score_async(self, item):
            if item.text == "forge":
                forge(10**6)
            return Score(value=float(len(item.text)))

    return Forger


@pytest.mark.parametrize("target", [forger(), forger_async()], ids=["plain", "asynchronous"])
def test_an_answer_that_nobody_asked_for_ends_that_worker_alone(target, no_leak):
    with RewardPool([entry(target)], workers=1) as pool:
        pool.submit(task(number, text) for number, text in enumerate(["a", "forge", "bb"]))
        found = {result.task.task_id: result.scores[0] for result in results(pool, 3)}
        assert (found[0].value, found[2].value) == (1.0, 2.0)
        assert found[1].outcome is Outcome.INFRA
        assert "died, twice (it answered a task that it did not have)" in found[1].reason


@pytest.fixture
def refusing(monkeypatch):
    """``refusing(n)``: the next n starts of a worker fail as on a machine without room for a process; the list counts them."""
    starts, refused = WorkerProcess._start, []
    left = [0]

    def start(self, channel):
        if left[0] > 0:
            left[0] -= 1
            refused.append(channel)
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return starts(self, channel)

    monkeypatch.setattr(WorkerProcess, "_start", start)

    def refuse(count):
        left[0] = count
        return refused

    return refuse


def test_a_worker_that_cannot_be_replaced_at_once_is_replaced_later(refusing, no_leak):
    """The other one goes on meanwhile."""
    with RewardPool([entry(misbehaving())], workers=2) as pool:
        wait_for(lambda: len(worker_pids(pool)) == 2)
        refused = refusing(4)
        kill(worker_pids(pool)[0])
        wait_for(lambda: refused)
        pool.submit(task(number) for number in range(20))
        assert all(result.scores[0].outcome is Outcome.OK for result in results(pool, 20))
        wait_for(lambda: len(refused) == 4 and len(worker_pids(pool)) == 2)


def test_a_machine_that_refuses_every_process_is_reported(refusing, monkeypatch, no_leak):
    monkeypatch.setattr("rlcore.rewards.dispatch._LONGEST_PAUSE", 0.01)
    refusing(10**6)
    with pytest.raises(PluginError, match=r"cannot be started \(.*temporarily unavailable\); free memory or processes, or lower schedule"):
        RewardPool([entry(misbehaving())], workers=1)


def daemonizing(folder):
    """Its daemon has forked twice and has a session of its own; it then does as it is told."""
    path = str(folder)

    def reward(item):
        import os
        import time
        from pathlib import Path

        from rlcore.contracts.types import Score

        if item.text != "fine" and not (Path(path) / item.text).exists():
            (Path(path) / item.text).touch()
            child = os.fork()
            if not child:
                os.setsid()
                if not os.fork():
                    (Path(path) / f"daemon-{item.text}").write_text(str(os.getpid()))
                    time.sleep(600)
                os._exit(0)
            os.waitpid(child, 0)
            while not ((wrote := Path(path) / f"daemon-{item.text}").exists() and wrote.read_text()):
                time.sleep(0.005)
            if item.text == "die":
                os._exit(3)
            if item.text == "hang":
                time.sleep(600)
        return Score(value=1.0)

    return reward


def daemonizing_async(folder):
    act = daemonizing(folder)

    class Daemonizing(AsyncReward):
        async def score_async(self, item):
            return act(item)

    return Daemonizing


@pytest.mark.parametrize("end", ["return", "die", "hang"])
@pytest.mark.parametrize("target", [daemonizing, daemonizing_async], ids=["plain", "asynchronous"])
def test_a_daemon_that_a_reward_leaves_behind_ends_with_its_worker(target, end, tmp_path, no_leak):
    """However the worker ends: told to, by itself, or killed at the deadline."""
    with RewardPool([entry(target(tmp_path))], workers=1) as pool:
        pool.submit([task(0, end, deadline=1.0 if end == "hang" else 60.0)])
        assert results(pool, 1)[0].scores[0].outcome is Outcome.OK
        daemon = int((tmp_path / f"daemon-{end}").read_text())
        assert end != "return" or state(daemon) not in "ZX", "it lives as long as its worker"
    assert state(daemon) in "ZX"  # whoever it fell to may not have asked for it yet


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def filling(asynchronous):
    """A reward that takes as many MiB as its text says, and holds them until it is killed or its time is over."""

    def fill(item):
        import time

        from rlcore.contracts.types import Score

        if item.text.isdigit():
            held = b"x" * (int(item.text) << 20)
            time.sleep(0.6 if len(held) < 200 << 20 else 600)
        return Score(value=7.0)

    class Filling(AsyncReward):
        async def score_async(self, item):
            import asyncio

            return await asyncio.to_thread(fill, item) if item.text == "60" else fill(item)

    return Filling if asynchronous else fill


@pytest.mark.parametrize("asynchronous", [False, True], ids=["plain", "asynchronous"])
def test_a_call_that_fills_the_memory_is_ended_and_those_beside_it_are_judged(asynchronous, no_leak):
    """Far before its deadline; one that takes less keeps its verdict."""
    with RewardPool([entry(filling(asynchronous))], workers=1, limits=WorkerLimits(call=100 << 20)) as pool:
        workers = worker_pids(pool)
        pool.submit(task(number, text, deadline=100.0) for number, text in enumerate(["a", "400", "60", "b"]))
        found = {result.task.task_id: result.scores[0] for result in results(pool, 4)}
        assert [found[number].value for number in (0, 2, 3)] == [7.0, 7.0, 7.0]
        assert (found[1].outcome, found[1].in_loss) == (Outcome.ERROR, False)
        assert found[1].reason == "one call took more than 100 MiB of memory, twice (schedule.reward_call_memory_mb)"
        assert worker_pids(pool) != workers


def test_memory_is_unbounded_if_the_bound_is_0(no_leak):
    with RewardPool([entry(filling(False))], workers=1, limits=WorkerLimits(call=0)) as pool:
        pool.submit([task(0, "150")])
        assert results(pool, 1)[0].scores[0].value == 7.0
