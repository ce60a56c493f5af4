"""The engine under rewards that hang, die, lie and leak: every item ends with its typed outcome, and nothing is left behind."""

import os
import random
import threading
from pathlib import Path

import pytest
from kit_rewards import children, entry, kill, misbehaving, results, task, wait_for

from rlcore.contracts.errors import PluginError, RunError
from rlcore.contracts.reward_interface import Reward
from rlcore.contracts.types import Outcome, Score
from rlcore.rewards.pool import RewardPool
from rlcore.rewards.worker_protocol import WorkerLimits
from tests.worker_pids import worker_pids


@pytest.fixture(scope="module")
def shared():
    with RewardPool([entry(misbehaving())], workers=1) as pool:
        yield pool


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        ("hang", Outcome.TIMEOUT, "no verdict within 0.4 s, twice"),
        ("die", Outcome.INFRA, "died, twice (killed by signal 9"),
        ("segfault", Outcome.INFRA, "died, twice (killed by signal 11"),
        ("leave", Outcome.INFRA, "died, twice (exit code 3)"),
        ("no machine", Outcome.INFRA, "InfrastructureError: the sandbox died"),
        ("exit", Outcome.ERROR, "SystemExit: 3"),
        ("raise", Outcome.ERROR, "ValueError: this reward is at fault"),
        ("timeout class", Outcome.ERROR, "LibraryTimeout"),
        ("recurse", Outcome.ERROR, "RecursionError"),
        ("memory", Outcome.ERROR, "MemoryError"),
        ("nan", Outcome.ERROR, "value is nan; it must be finite"),
        ("infinite", Outcome.ERROR, "value is inf; it must be finite"),
        ("text", Outcome.ERROR, "returned str, it must return a Score or a number"),
        ("none", Outcome.ERROR, "returned NoneType"),
        ("accuracy", Outcome.ERROR, "accuracy is 1.5; it must be between 0 and 1"),
        ("outcome", Outcome.ERROR, "splendid"),
        ("own timeout", Outcome.ERROR, "outcome timeout is reserved for rlcore; raise an exception"),
        ("part", Outcome.ERROR, "part a is a str; it must be a number"),
        ("print", Outcome.OK, ""),
        ("read", Outcome.OK, ""),
        ("alarm", Outcome.OK, ""),
    ],
)
def test_typed_outcomes(text, outcome, reason, shared):
    """The items before and after, in the same job, keep their verdicts."""
    texts = ["a", text, "bb", "slow", "ccc", *["dddd"] * 8]
    shared.submit([task(99)])
    results(shared, 1)  # the worker that the case before brought down is replaced
    workers = worker_pids(shared)
    shared.submit(task(number, said, deadline=0.4) for number, said in enumerate(texts))
    found = {result.task.task_id: result.scores[0] for result in results(shared, len(texts))}
    assert (found[1].outcome, found[1].in_loss) == (outcome, outcome is Outcome.OK)
    assert reason in found[1].reason
    assert [found[number].value for number in range(len(texts)) if number != 1] == [1.0, 2.0, 4.0, 3.0, *[4.0] * 8]
    assert (worker_pids(shared) == workers) is (outcome in (Outcome.OK, Outcome.ERROR) or text == "no machine")


@pytest.mark.parametrize("text", ["hang once", "die once", "no machine once"])
def test_an_accident_is_retried_once(text, tmp_path):
    with RewardPool([entry(misbehaving(tmp_path))], workers=1) as pool:
        pool.submit([task(0, text, deadline=0.4)])
        (result,) = results(pool, 1)
    assert result.scores[0] == Score(value=float(len(text)))


def test_the_children_of_a_hung_reward_die_with_it(tmp_path):
    with RewardPool([entry(misbehaving(tmp_path))], workers=1) as pool:
        pool.submit([task(0, "hang with children", deadline=0.4)])
        (result,) = results(pool, 1)
        assert result.scores[0].outcome is Outcome.TIMEOUT
    child = int((tmp_path / "child").read_text())
    wait_gone(child)


def wait_gone(pid):
    """Until no such process runs (a zombie whose parent is elsewhere counts as gone)."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"process {pid} is still there")


def test_hundreds_of_items_with_accidents_leave_nothing_behind(no_leak):
    """Random accidents among honest items, and workers killed from outside meanwhile."""
    source = random.Random(0)
    texts = [source.choice(["die", "raise", "exit"]) if source.random() < 0.06 else "x" * source.randint(0, 9) for _ in range(300)]
    expected = {"die": Outcome.INFRA, "raise": Outcome.ERROR, "exit": Outcome.ERROR}
    with RewardPool([entry(misbehaving())], workers=2) as pool:
        pool.submit(task(number, text) for number, text in enumerate(texts))
        found = results(pool, 100)
        kill(worker_pids(pool)[0])
        found += results(pool, len(texts) - len(found))
        pool.submit([task(1000 + number) for number in range(20)])  # the capacity is back
        assert all(result.scores[0].outcome is Outcome.OK for result in results(pool, 20))
    assert sorted(result.task.task_id for result in found) == list(range(len(texts)))
    for result in found:
        text = texts[result.task.task_id]
        assert result.scores[0].outcome is expected.get(text, Outcome.OK)
        assert result.scores[0].outcome is not Outcome.OK or result.scores[0].value == len(text)


def test_an_idle_worker_that_is_killed_is_replaced(no_leak):
    with RewardPool([entry(misbehaving())], workers=1) as pool:
        for number in range(3):
            kill(worker_pids(pool)[0])
            pool.submit([task(number)])
            assert results(pool, 1)[0].scores[0].outcome is Outcome.OK


def test_idle_workers_that_are_all_killed_are_all_replaced(no_leak):
    """More at once than failed starts in a row are forgiven."""
    with RewardPool([entry(misbehaving())], workers=4) as pool:
        pool.submit(task(number, "slow") for number in range(12))
        results(pool, 12)
        wait_for(lambda: len(worker_pids(pool)) >= 4)
        for pid in worker_pids(pool):
            kill(pid)
        pool.submit(task(number) for number in range(8))
        assert all(result.scores[0].outcome is Outcome.OK for result in results(pool, 8))
        wait_for(lambda: len(worker_pids(pool)) >= 4)


def test_a_worker_that_is_killed_while_it_starts_is_replaced(no_leak):
    before, made = children(), []
    thread = threading.Thread(target=lambda: made.append(RewardPool([entry(misbehaving())], workers=1)))
    thread.start()
    wait_for(lambda: children() - before)
    for pid in children() - before:
        kill(pid)
    thread.join(60)
    with made[0] as pool:
        pool.submit([task(0)])
        assert results(pool, 1)[0].scores[0].outcome is Outcome.OK


def test_what_stands_behind_a_hanging_task_is_judged_by_others(no_leak):
    """Tasks so quick that they travel in company; the deadline of the one that hangs is longer than the test."""
    with RewardPool([entry(misbehaving())], workers=2) as pool:
        pool.submit(task(number) for number in range(200))
        results(pool, 200)
        pool.submit([task(1000, "hang", deadline=600.0), *(task(number) for number in range(100))])
        assert {result.task.task_id for result in results(pool, 100)} == set(range(100))


def test_an_open_without_its_machine_is_tried_again(tmp_path, no_leak):
    path = str(tmp_path)

    class Late(Reward):
        def open(self):
            from pathlib import Path

            from rlcore.contracts.errors import SandboxError

            marker = Path(path) / "opened"
            if not marker.exists():
                marker.touch()
                raise SandboxError("no sandbox yet")

        def score(self, item):
            return Score(value=1.0)

    with RewardPool([entry(Late)], workers=1) as pool:
        pool.submit([task(0)])
        assert results(pool, 1)[0].scores[0].value == 1.0


def test_an_open_that_never_finds_its_machine_is_reported(no_leak):
    class Never(Reward):
        def open(self):
            from rlcore.contracts.errors import SandboxError

            raise SandboxError("no sandbox here; install bubblewrap")

        def score(self, item):
            raise NotImplementedError

    with pytest.raises(PluginError, match=r"cannot be built \(SandboxError: no sandbox here; install bubblewrap\)$"):
        RewardPool([entry(Never, "mine")], workers=1)


def lifecycle(folder):
    path = str(folder)

    class Lifecycle(Reward):
        def open(self):
            self.kept = []
            self.note("opened")

        def score(self, item):
            if item.text == "leak":
                self.kept.append(b"x" * (20 << 20))
            return Score(value=float(os.getpid()))

        def close(self):
            self.note("closed")

        def note(self, word):
            from pathlib import Path

            (Path(path) / f"{word}-{os.getpid()}").touch()

    return Lifecycle


def test_workers_are_recycled_by_items_and_closed(tmp_path, no_leak):
    with RewardPool([entry(lifecycle(tmp_path))], workers=1, limits=WorkerLimits(items=5)) as pool:
        pool.submit(task(number) for number in range(23))
        workers = [result.scores[0].value for result in results(pool, 23)]
    assert [workers.count(pid) for pid in dict.fromkeys(workers)] == [5, 5, 5, 5, 3]
    opened = {path.name.partition("-")[2] for path in tmp_path.glob("opened-*")}
    closed = {path.name.partition("-")[2] for path in tmp_path.glob("closed-*")}
    assert opened == closed
    assert {str(int(pid)) for pid in workers} <= opened


def test_workers_are_recycled_by_memory(tmp_path):
    with RewardPool([entry(lifecycle(tmp_path))], workers=1, limits=WorkerLimits(growth=50 << 20)) as pool:
        pool.submit(task(number, "leak") for number in range(9))
        workers = [result.scores[0].value for result in results(pool, 9)]
    assert [workers.count(pid) for pid in dict.fromkeys(workers)] == [3, 3, 3]


def unbuildable(error):
    class Unbuildable(Reward):
        def __init__(self):
            raise error

        def score(self, item):
            raise NotImplementedError

    return Unbuildable


def async_reward():
    async def judge(item):
        return 1.0

    return judge


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (unbuildable(ValueError("no judge at port 80")), r"reward 'mine' cannot be built \(ValueError: no judge at port 80\)"),
        (unbuildable(SystemExit(2)), "SystemExit: 2"),
        (int, "is the class int, it must be a class derived from rlcore.api.Reward, or a function of one RewardInput"),
        (async_reward(), "judge is async"),
        (3, "is of type int, it must be a class derived from rlcore.api.Reward, or a function"),
    ],
)
def test_a_reward_that_cannot_be_built_is_reported_at_the_start(target, words, no_leak):
    with pytest.raises(PluginError, match=words) as caught:
        RewardPool([entry(target, "mine")], workers=2)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_an_open_that_hangs_is_reported(no_leak):
    class Sleepy(Reward):
        def open(self):
            threading.Event().wait(600)

        def score(self, item):
            raise NotImplementedError

    with pytest.raises(PluginError, match=r"not ready after 1 s"):
        RewardPool([entry(Sleepy)], workers=1, start_seconds=1.0)


def test_a_pool_that_cannot_restart_workers_says_why(tmp_path, no_leak):
    path = str(tmp_path)

    class OnlyOnce(Reward):
        def open(self):
            from pathlib import Path

            (Path(path) / "opened").touch(exist_ok=False)

        def score(self, item):
            os._exit(1)

    with RewardPool([entry(OnlyOnce)], workers=1) as pool:
        pool.submit([task(0)])
        with pytest.raises(RunError, match="FileExistsError"):
            results(pool, 1)
        with pytest.raises(RunError, match="FileExistsError"):
            pool.submit([task(1)])


def test_a_late_accident_of_a_cancelled_task_is_not_told():
    with RewardPool([entry(misbehaving())], workers=1) as pool:
        pool.submit([task(0, "hang", deadline=0.3), task(1)])
        pool.cancel([0])
        assert [result.task.task_id for result in results(pool, 1)] == [1]
        assert pool.poll(0.0) == []


def test_at_least_one_worker():
    with pytest.raises(ValueError, match="at least 1"):
        RewardPool([entry(misbehaving())], workers=0)
