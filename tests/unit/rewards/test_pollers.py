"""Several threads at one judge: what one of them takes for another reaches it, in the worst order too."""

import threading

import pytest
from kit_rewards import entry, prompt, rollout

from rlcore.contracts.reward_interface import Reward
from rlcore.contracts.types import FinishReason, Score
from rlcore.rewards.judge import Judge


@pytest.fixture
def taken_by_another(monkeypatch):
    """``taken_by_another(judge, thread)``: that thread, once it has seen that nothing is there, gets to wait for news only after everything
    was taken by another, told by the event. The worst order in which two can meet."""

    def arrange(judge, thread):
        poll, taken = judge.pool.poll, threading.Event()

        def late(timeout, *more):
            if threading.current_thread() is thread:
                assert taken.wait(30)
            return poll(timeout, *more)

        monkeypatch.setattr(judge.pool, "poll", late)
        return taken

    return arrange


def checking():
    class Checking(Reward):
        def check(self, columns):
            return None

        def score(self, item):
            return Score(value=1.0)

    return Checking


def test_a_check_hears_of_answers_that_a_poller_took(taken_by_another):
    with Judge([entry(checking())], workers=1) as judge:
        checker = threading.Thread(target=judge.check, args=([prompt(0), prompt(1)],))
        taken = taken_by_another(judge, checker)
        checker.start()
        while not judge._checked:
            assert judge.poll(0.05) == []
        taken.set()
        checker.join(20)  # without news it sleeps for a minute
        assert not checker.is_alive()


def test_a_poller_hears_of_groups_that_a_check_took(taken_by_another):
    found = []
    with Judge([entry(checking())], workers=1) as judge:
        poller = threading.Thread(target=lambda: found.extend(judge.poll(60.0)))
        taken = taken_by_another(judge, poller)
        poller.start()
        judge.submit(7, prompt(), [rollout("a")])
        while not judge._finished:
            judge.check([prompt(1)])
        taken.set()
        poller.join(20)
        assert [key for key, _ in found] == [7]


def test_a_poller_hears_of_a_group_that_needs_no_verdict(taken_by_another):
    found = []
    with Judge([entry(checking())], workers=1) as judge:
        poller = threading.Thread(target=lambda: found.extend(judge.poll(60.0)))
        taken = taken_by_another(judge, poller)
        poller.start()
        judge.submit(7, prompt(), [rollout("a", finish=FinishReason.ABORTED)])
        taken.set()
        poller.join(20)
        assert [key for key, _ in found] == [7]
