"""Rewards that wait for others: many at once in one process, retries, a rate, deadlines from inside and from outside."""

import time

import pytest
from kit_rewards import collect, entry, kill, misbehaving, prompt, results, rollout, task, wait_for

from rlcore.contracts.errors import PluginError
from rlcore.contracts.reward_interface import AsyncReward, Reward
from rlcore.contracts.types import Outcome, RewardInput, Score
from rlcore.rewards.async_worker import RateLimiter
from rlcore.rewards.judge import Judge
from rlcore.rewards.pool import RewardPool
from rlcore.rewards.worker_protocol import WorkerLimits
from tests.worker_pids import worker_pids


def misbehaving_calls():
    """What a call can do to the loop that it shares. Nested, so that it travels by value."""

    async def misbehave(word):
        import _thread
        import asyncio
        import os
        import signal
        import sys
        import time

        async def child():
            time.sleep(600)

        async def leave():
            sys.exit(3)

        match word:
            case "exit-child":
                await asyncio.gather(leave())
            case "exit-task":
                loose = asyncio.create_task(leave())
                await asyncio.sleep(0.05)
                assert loose.done()
            case "exit-later":
                asyncio.get_running_loop().call_soon(sys.exit, 3)
                await asyncio.sleep(0.05)
            case "cancel-all":
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
            case "stop":
                asyncio.get_running_loop().stop()
            case "stop-later":
                asyncio.get_running_loop().call_later(0.05, asyncio.get_running_loop().stop)
                await asyncio.sleep(0.1)
            case "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0.05)
            case "interrupt-raised":
                raise KeyboardInterrupt
            case "interrupt-thread":
                await asyncio.to_thread(_thread.interrupt_main)
                await asyncio.sleep(0.05)
            case "deaf":
                while True:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        continue
            case "block":
                time.sleep(600)
            case "block-child":
                await asyncio.gather(child())
            case "leave-later":
                asyncio.get_running_loop().call_soon(os._exit, 3)
                await asyncio.sleep(60)

    return misbehave


def counting_calls(folder):
    """How often a text was asked about, whichever process asks. Nested, so that it travels by value."""

    def note(text):
        from pathlib import Path

        marker = Path(folder) / text.replace(" ", "_")
        with marker.open("a") as file:
            file.write("x")
        return marker.stat().st_size

    return note


def network(folder="", **limits):
    """An asynchronous reward that does what its text says. ``limits`` are its class attributes."""
    note = counting_calls(str(folder))
    misbehave = misbehaving_calls()

    class Network(AsyncReward):
        backoff = 0.01
        in_flight = 0
        most = 0
        met = None

        async def open_async(self):
            import asyncio

            self.loop = asyncio.get_running_loop()

        async def score_async(self, item):
            type(self).in_flight += 1
            type(self).most = max(self.most, self.in_flight)
            try:
                return await self.act(item)
            finally:
                type(self).in_flight -= 1

        async def act(self, item):
            import asyncio
            import os
            import sys
            import threading
            import time

            match item.text.split():
                case ["wait", seconds]:
                    await asyncio.sleep(float(seconds))
                case ["meet", threads]:
                    self.met = self.met or threading.Barrier(int(threads))
                    await asyncio.to_thread(self.met.wait)
                case ["fill", calls]:
                    while self.most < int(calls):
                        await asyncio.sleep(0.005)
                    await asyncio.sleep(0.02)
                case ["most"]:
                    return Score(value=float(self.most))
                case ["loop"]:
                    return Score(value=float(self.loop is asyncio.get_running_loop()))
                case ["process"]:
                    return Score(value=float(os.getpid()))
                case ["hang"]:
                    await asyncio.Event().wait()
                case [("deaf" | "block" | "block-child" | "leave-later" | "stop" | "stop-later" | "cancel-all") as word, *_]:
                    await misbehave(word)
                case [word, *_] if word.startswith(("exit-", "interrupt")):
                    await misbehave(word)
                case ["block-once"] if note(item.text) == 1:
                    time.sleep(600)
                case ["hang-once", _] if note(item.text) == 1:
                    await asyncio.Event().wait()
                case ["leave"]:
                    os._exit(3)
                case ["exit"]:
                    sys.exit(3)
                case ["raise"]:
                    raise ValueError("this reward is at fault")
                case ["refuse", times]:
                    if note(item.text) <= int(times):
                        raise ConnectionError("refused")
                case ["late"]:
                    raise TimeoutError
                case ["text"]:
                    return "10"
            return Score(value=float(len(item.text)))

    for name, value in limits.items():
        setattr(Network, name, value)
    return Network


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """As many in flight as one test has, so that each is judged at once."""
    with RewardPool([entry(network(tmp_path_factory.mktemp("asked")))], workers=1) as pool:
        yield pool


@pytest.mark.parametrize(
    ("text", "deadline", "outcome", "reason"),
    [
        ("hang", 0.2, Outcome.TIMEOUT, "no verdict within 0.2 s"),
        ("deaf", 0.2, Outcome.TIMEOUT, "no verdict within 0.2 s"),
        ("block", 0.2, Outcome.TIMEOUT, "the event loop was blocked for 0.2 s, twice"),
        ("block-child", 0.2, Outcome.TIMEOUT, "the event loop was blocked for 0.2 s, twice"),
        ("leave", 60.0, Outcome.INFRA, "died, twice (exit code 3)"),
        ("exit", 60.0, Outcome.ERROR, "SystemExit: 3"),
        ("raise", 60.0, Outcome.ERROR, "ValueError: this reward is at fault"),
        ("text", 60.0, Outcome.ERROR, "returned str, it must return a Score"),
        ("refuse 99", 60.0, Outcome.INFRA, "ConnectionError: refused, after 4 attempts"),
        ("late", 60.0, Outcome.INFRA, "TimeoutError, after 4 attempts"),
        ("refuse 2", 60.0, Outcome.OK, ""),
        ("block-once", 2.0, Outcome.OK, ""),
    ],
)
def test_typed_outcomes(text, deadline, outcome, reason, shared):
    """Those in flight beside it keep their verdicts: if it blocks the loop twice, one that was blamed with it would fail with it."""
    texts = ["wait 0.1", text, "bb", "wait 0.2", "ccc"]
    shared.submit(task(number, said, deadline=deadline if number == 1 else 60.0) for number, said in enumerate(texts))
    ended = {result.task.task_id: result for result in results(shared, len(texts))}
    found = {number: result.scores[0] for number, result in ended.items()}
    assert outcome is not Outcome.TIMEOUT or ended[1].seconds >= deadline
    assert (found[1].outcome, found[1].in_loss) == (outcome, outcome is Outcome.OK)
    assert reason in found[1].reason
    assert [found[number].value for number in (0, 2, 3, 4)] == [8.0, 2.0, 8.0, 3.0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exit-child", "RuntimeError: the reward raised SystemExit: 3"),
        ("exit-task", ""),
        ("exit-later", ""),
        ("stop", ""),
        ("stop-later", ""),
        ("cancel-all", "CancelledError"),
        ("interrupt", ""),
        ("interrupt-raised", "RuntimeError: the reward raised KeyboardInterrupt"),
        ("interrupt-thread", ""),
    ],
)
def test_what_would_end_the_loop_costs_the_others_nothing(text, reason, tmp_path, no_leak):
    """Each is judged once, in the process in which it began: no neighbour has lost its first attempt."""
    with RewardPool([entry(network(tmp_path))], workers=1) as pool:
        pool.submit([task(0, "process")])
        host = results(pool, 1)[0].scores[0].value
        texts = ["wait 0.1", text, "wait 0.2", "refuse 0"]
        pool.submit(task(number, said, deadline=60.0) for number, said in enumerate(texts, 1))
        found = {result.task.task_id: result.scores[0] for result in results(pool, 4)}
        assert [found[number].value for number in (1, 3, 4)] == [8.0, 8.0, 8.0]
        assert (found[2].outcome, found[2].reason) == (Outcome.ERROR if reason else Outcome.OK, reason)
        pool.submit([task(9, "process")])
        assert results(pool, 1)[0].scores[0].value == host


def test_threads_are_as_many_as_calls(no_leak):
    """asyncio's own number of threads follows the cores: on a small machine a judge would wait for itself."""
    with RewardPool([entry(network(concurrency=60))], workers=1) as pool:
        pool.submit(task(number, "meet 60", deadline=60.0) for number in range(60))
        assert {result.scores[0].outcome for result in results(pool, 60)} == {Outcome.OK}


@pytest.mark.parametrize("limit", [1, 5])
def test_as_many_in_flight_as_it_admits(limit, no_leak):
    """However many workers the pool has."""
    with RewardPool([entry(network(concurrency=limit))], workers=3) as pool:
        pool.submit(task(number, f"fill {limit}") for number in range(20))
        results(pool, 20)
        pool.submit([task(99, "most")])
        assert results(pool, 1)[0].scores[0].value == limit
        assert len(worker_pids(pool)) == 1, "without a synchronous reward there is nothing for workers to do"


def test_a_rate_is_kept_and_takes_nothing_from_deadlines(no_leak):
    """The last one waits 2.5 s for its turn, which is more than two attempts may take."""
    started = time.monotonic()
    with RewardPool([entry(network(rate_limit=8.0, concurrency=21))], workers=1) as pool:
        pool.submit(task(number, deadline=1.2) for number in range(21))
        assert {result.scores[0].outcome for result in results(pool, 21)} == {Outcome.OK}
    assert time.monotonic() - started >= 2.5


@pytest.mark.parametrize(("retries", "asked"), [(0, 2), (2, 3)])
def test_retries(retries, asked, tmp_path):
    """Its own, or the engine's one where it has none."""
    with RewardPool([entry(network(tmp_path, retries=retries))], workers=1) as pool:
        pool.submit([task(0, "refuse 99")])
        assert results(pool, 1)[0].scores[0].outcome is Outcome.INFRA
    assert (tmp_path / "refuse_99").stat().st_size == asked


def test_a_host_that_is_killed_is_replaced_and_its_tasks_are_judged(no_leak, tmp_path):
    with RewardPool([entry(network(tmp_path))], workers=1) as pool:
        pool.submit(task(number, f"hang-once {number}", deadline=60.0) for number in range(5))
        wait_for(lambda: len(list(tmp_path.iterdir())) == 5)
        kill(worker_pids(pool)[0])
        assert {result.scores[0].value for result in results(pool, 5)} == {11.0}


def test_what_ends_the_host_without_a_trace_is_tried_once_more(no_leak):
    """A callback, which no task can be blamed for: all that is in flight has had one attempt, and nothing goes on for ever."""
    with RewardPool([entry(network())], workers=1) as pool:
        pool.submit([task(0, "leave-later")])
        assert "died, twice (exit code 3)" in results(pool, 1)[0].scores[0].reason


def test_a_host_is_recycled_by_items(no_leak):
    with RewardPool([entry(network(concurrency=2))], workers=1, limits=WorkerLimits(items=10)) as pool:
        pool.submit(task(number, "process") for number in range(40))
        hosts = [result.scores[0].value for result in results(pool, 40)]
    assert 3 <= len(set(hosts)) <= 4
    assert all(hosts.count(host) >= 10 or host == hosts[-1] for host in hosts)


def synchronous():
    return lambda item: 100.0


def test_beside_a_synchronous_reward(no_leak):
    with Judge([entry(synchronous(), "plain"), entry(network(), "network")], workers=1) as judge:
        judge.submit(1, prompt(), [rollout("abc"), rollout("wait 0.1")])
        assert [score.value for score in collect(judge, [1])[1]] == [103.0, 108.0]
        assert judge.metrics()["reward/network/latency_p99"] >= 0.05


def checking():
    class Checking(AsyncReward):
        def open(self):
            self.opened = True

        def notice(self):
            return "asks nobody"

        def check(self, columns):
            return None if self.opened else "not open"

        async def open_async(self):
            assert self.opened

        async def score_async(self, item):
            return Score(value=1.0)

    return Checking


def test_rows_are_checked_and_notices_given_where_it_is_open():
    with Judge([entry(checking(), "mine")], workers=2) as judge:
        judge.check([prompt(number) for number in range(5)])
        assert judge.notices == ("reward mine: asks nobody",)


def unopenable():
    class Unopenable(AsyncReward):
        async def open_async(self):
            raise ValueError("no address")

        async def score_async(self, item):
            raise NotImplementedError

    return Unopenable


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (unopenable(), r"'mine' cannot be built \(ValueError: no address\); fix"),
        (network(concurrency=0), "concurrency is 0, not 1 or more"),
        (network(retries=-1), "retries is -1, not 0 or more"),
        (network(rate_limit=0.0), "rate_limit is 0.0, not above 0 or None"),
        (network(backoff=-1.0), "backoff is -1.0, not 0 seconds or more"),
        (network(group_level=True), "group_level is set; an AsyncReward scores single rollouts"),
    ],
)
def test_one_that_cannot_work_is_reported_at_the_start(target, words, no_leak):
    with pytest.raises(PluginError, match=words):
        RewardPool([entry(target, "mine")], workers=1)


def test_it_is_a_reward_outside_the_engine_too():
    reward = network()()
    assert isinstance(reward, Reward)
    assert reward.score(RewardInput(messages=(), columns={}, text="loop")) == Score(value=1.0)


def test_a_pace_spreads_its_turns_evenly():
    import asyncio

    async def turns(rate, count):
        pace, started = RateLimiter(rate), time.monotonic()
        await asyncio.gather(*(pace.turn() for _ in range(count)))
        return time.monotonic() - started

    assert asyncio.run(turns(100.0, 11)) >= 0.1
    with pytest.raises(StopIteration):  # it waits for nothing
        RateLimiter(None).turn().send(None)


def test_accidents_of_a_worker_leave_the_host_alone(no_leak):
    with RewardPool([entry(misbehaving(), "plain"), entry(network(), "network")], workers=1) as pool:
        pool.submit([task(0, "process", reward=1)])
        before = results(pool, 1)[0].scores[0].value
        pool.submit([task(1, "die"), task(2, "wait 0.2", reward=1)])
        assert {result.task.task_id: result.scores[0].outcome for result in results(pool, 2)} == {1: Outcome.INFRA, 2: Outcome.OK}
        pool.submit([task(3, "process", reward=1)])
        assert results(pool, 1)[0].scores[0].value == before
