"""kill -9 of any worker at any moment: the task that it was judging is tried once more, then ``infra``; nothing else notices."""

import random
import threading

import pytest
from kit_rewards import entry, kill, misbehaving, results, task, wait_for

from rlcore.contracts.types import Outcome
from rlcore.rewards.pool import RewardPool
from tests.worker_pids import worker_pids


class Killer(threading.Thread):
    """Kills a random worker at random moments until it is told to stop.

    Between two kills something was judged: a pool none of whose workers lives to be asked anything gives up, as it should, and how fast
    they start is the machine's business.
    """

    def __init__(self, pool, source, pauses, found):
        super().__init__(daemon=True)
        self.pool, self.source, self.pauses, self.enough, self.kills = pool, source, pauses, threading.Event(), 0
        self.found = found

    def run(self):
        judged = -1
        while not self.enough.wait(self.source.uniform(*self.pauses)):
            pids = worker_pids(self.pool)
            if pids and len(self.found) > judged:
                judged = len(self.found)
                kill(self.source.choice(pids))
                self.kills += 1


def judged_under_fire(seed, count, pauses):
    source = random.Random(seed)
    texts = ["x" * source.randint(0, 9) if source.random() < 0.9 else "slow" for _ in range(count)]
    with RewardPool([entry(misbehaving())], workers=3) as pool:
        found = []
        killer = Killer(pool, source, pauses, found)
        killer.start()
        try:
            pool.submit(task(number, text) for number, text in enumerate(texts))
            while len(found) < count:
                found += results(pool, 1)
        finally:
            killer.enough.set()
            killer.join()
        wait_for(lambda: len(worker_pids(pool)) == 4)  # one of them to spare
        pool.submit([task(count + number) for number in range(20)])
        assert {result.scores[0].value for result in results(pool, 20)} == {4.0}
    assert sorted(result.task.task_id for result in found) == list(range(count)), "each exactly once"
    for result in found:
        (score,) = result.scores
        if score.outcome is Outcome.OK:
            assert score.value == len(texts[result.task.task_id])
        else:
            assert score.outcome is Outcome.INFRA
            assert "the worker scoring it died, twice (killed by signal 9" in score.reason
    return killer.kills, sum(result.scores[0].outcome is Outcome.INFRA for result in found)


def test_kills_at_random_moments(no_leak):
    kills, lost = judged_under_fire(seed=1, count=300, pauses=(0.02, 0.25))
    assert kills >= 3
    assert lost <= kills // 2


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 6))
def test_more_kills_at_random_moments(seed, no_leak):
    """Also while workers start, for they are killed nearly as fast as they do."""
    kills, lost = judged_under_fire(seed, count=600, pauses=(0.05, 0.4))
    assert kills >= 3
    assert lost <= kills // 2
