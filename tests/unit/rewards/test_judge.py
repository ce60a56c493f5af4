"""Groups in, groups of scores out: routing, mixing, columns, budgets."""

import asyncio
import threading

import pytest
from kit_rewards import collect, entry, misbehaving, prompt, rollout

from rlcore.errors import DataError, RewardBudgetError, RunError
from rlcore.interfaces import Reward
from rlcore.rewards import Judge
from rlcore.types import Finish, Outcome, Score


def length_reward():
    return lambda item: float(len(item.text))


def column_reward():
    class Columns(Reward):
        requires = ("gold",)

        def score(self, item):
            return Score(value=1.0, accuracy=float(item.text == item.columns["gold"]), reason=",".join(sorted(item.columns)))

        def check(self, columns):
            return None if columns["gold"] else "gold is empty"

    return Columns


def group_reward():
    class Longest(Reward):
        group_level = True

        def score(self, item):
            raise AssertionError("a group-level reward is asked about groups")

        def score_group(self, items):
            longest = max(len(item.text) for item in items)
            return [Score(value=float(len(item.text) == longest)) for item in items]

    return Longest


def test_scores_come_back_in_the_order_of_the_rollouts(no_leak):
    with Judge([entry(length_reward())], workers=2) as judge:
        for key in range(40):
            judge.submit(key, prompt(key), [rollout("x" * ((key + place) % 7)) for place in range(5)])
        found = collect(judge, range(40))
        assert judge.pending == 0
        assert judge.poll(0.0) == []
    for key in range(40):
        assert [score.value for score in found[key]] == [(key + place) % 7 for place in range(5)]


def test_several_rewards_are_weighted_and_keep_their_names():
    entries = [entry(length_reward(), "length", weight=0.5), entry(column_reward(), "columns", weight=2.0)]
    with Judge(entries, workers=1) as judge:
        judge.submit(1, prompt(gold="abcd", secret="x"), [rollout("abcd"), rollout("ab")])
        right, wrong = collect(judge, [1])[1]
        metrics = judge.metrics()
    assert (right.value, right.accuracy, wrong.value, wrong.accuracy) == (4.0, 1.0, 3.0, 0.0)
    assert right.parts == {"length": 2.0, "columns": 2.0, "columns/accuracy": 1.0}
    assert metrics["reward/outcome/ok"] == 1.0
    assert metrics["reward/columns/outcome/ok"] == 1.0
    assert metrics["reward/latency_p99"] >= metrics["reward/latency_p50"] > 0
    assert metrics["reward/timeouts"] == 0


def test_metrics_start_anew_after_each_look():
    with Judge([entry(length_reward())], workers=1) as judge:
        judge.submit(1, prompt(), [rollout("a")])
        collect(judge, [1])
        judge.metrics()
        assert judge.metrics() == {"reward/timeouts": 0.0}


def test_a_row_routes_itself_to_one_reward():
    with Judge([entry(length_reward(), "length"), entry(column_reward(), "columns")], workers=1) as judge:
        judge.submit(1, prompt(reward="length"), [rollout("abc")])
        (score,) = collect(judge, [1])[1]
        assert score.parts == {"length": 3.0}
        with pytest.raises(DataError, match=r"train.jsonl:8: the row asks for reward 'lenght', but the run has length, columns"):
            judge.submit(2, prompt(7, reward="lenght"), [rollout("abc")])


def test_a_reward_sees_only_the_columns_it_declared():
    with Judge([entry(column_reward())], workers=1) as judge:
        judge.submit(1, prompt(gold="a", answer_key="b"), [rollout("a")])
        assert collect(judge, [1])[1][0].reason == "gold"


def test_a_group_level_reward_gets_the_group():
    with Judge([entry(group_reward())], workers=1) as judge:
        judge.submit(1, prompt(), [rollout("a"), rollout("abc"), rollout("?", Finish.ABORTED), rollout("ab")])
        scores = collect(judge, [1])[1]
    assert [score.value for score in scores] == [0.0, 1.0, 0.0, 0.0]
    assert [score.outcome for score in scores] == [Outcome.OK, Outcome.OK, Outcome.INFRA, Outcome.OK]


def slow_group_reward():
    class Slow(Reward):
        group_level = True

        def score(self, item):
            raise NotImplementedError

        def score_group(self, items):
            import time

            time.sleep(0.9)
            return [Score(value=1.0) for _ in items]

    return Slow


def test_a_group_has_the_deadline_of_all_its_rollouts():
    with Judge([entry(slow_group_reward(), deadline=0.5)], workers=1, error_budget=1.0) as judge:
        judge.submit(1, prompt(), [rollout("a")] * 8)
        judge.submit(2, prompt(), [rollout("a")])
        found = collect(judge, [1, 2])
    assert {score.outcome for score in found[1]} == {Outcome.OK}
    assert found[2][0].outcome is Outcome.TIMEOUT


def test_aborted_rollouts_are_masked_and_not_judged():
    with Judge([entry(length_reward())], workers=1, error_budget=0.0) as judge:
        for key in range(60):
            judge.submit(key, prompt(), [rollout("abc", Finish.ABORTED)])
        found = collect(judge, range(60))
        judge.submit(100, prompt(), [])
        assert collect(judge, [100])[100] == ()
    (score,) = found[0]
    assert (score.outcome, score.in_loss, score.in_statistics) == (Outcome.INFRA, False, False)


def test_one_failed_part_fails_the_whole():
    with Judge([entry(length_reward(), "length"), entry(misbehaving(), "bad")], workers=1, error_budget=1.0) as judge:
        judge.submit(1, prompt(), [rollout("raise"), rollout("fine")])
        failed, fine = collect(judge, [1])[1]
    assert (failed.outcome, failed.value, failed.in_loss) == (Outcome.ERROR, 0.0, False)
    assert failed.reason == "bad: ValueError: this reward is at fault"
    assert fine.value == 8.0


def test_too_many_failures_stop_the_run():
    with Judge([entry(misbehaving())], workers=1, error_budget=0.1) as judge:
        judge.submit(1, prompt(), [rollout("raise")] * 7 + [rollout("fine")] * 42)
        collect(judge, [1])  # 49 verdicts: too few to judge the judge
        with pytest.raises(RewardBudgetError, match=r"7 of the last 50 .*\(7 error\).*0\.1.*this reward is at fault") as caught:  # noqa: PT012
            judge.submit(2, prompt(), [rollout("fine")])
            collect(judge, [2])
    assert caught.value.exit_code == 1


def test_rows_that_cannot_be_judged_are_named_before_training():
    with Judge([entry(column_reward(), "columns"), entry(length_reward(), "length")], workers=2) as judge:
        judge.check([prompt(n, gold="a") for n in range(50)])
        judge.check([prompt(0, gold="", reward="length")])
        rows = [prompt(n, gold="" if n % 10 == 3 else "a") for n in range(50)]
        with pytest.raises(DataError) as caught:
            judge.check(rows)
        assert str(caught.value).startswith("train.jsonl:4: reward columns cannot judge this row: gold is empty; train.jsonl:14: ")
        assert str(caught.value).endswith("and 2 more rows")
        with pytest.raises(DataError, match=r"train.jsonl:1: reward columns cannot judge this row: KeyError: 'gold'"):
            judge.check([prompt(0)])


def test_a_cancelled_group_does_not_come_back(no_leak):
    with Judge([entry(misbehaving())], workers=1) as judge:
        judge.submit(1, prompt(), [rollout("slow")] * 3)
        judge.submit(2, prompt(), [rollout("slow")] * 3)
        judge.submit(3, prompt(), [rollout("fine")])
        judge.cancel(1)
        judge.cancel(2)
        judge.cancel(99)
        assert set(collect(judge, [3])) == {3}
        assert judge.pending == 0
        judge.submit(1, prompt(), [rollout("fine")])  # the key is free again
        assert collect(judge, [1])[1][0].value == 4.0


def test_a_key_in_use_is_refused():
    with Judge([entry(misbehaving())], workers=1) as judge:
        judge.submit(1, prompt(), [rollout("slow")])
        with pytest.raises(ValueError, match="group 1 is being judged already"):
            judge.submit(1, prompt(), [rollout("slow")])


def test_many_threads_and_an_event_loop_share_one_judge(no_leak):
    found = {}
    with Judge([entry(length_reward())], workers=2) as judge:

        def produce(first):
            for key in range(first, first + 20):
                judge.submit(key, prompt(), [rollout("x" * (key % 5))])

        threads = [threading.Thread(target=produce, args=(first,)) for first in (0, 100, 200)]
        for thread in threads:
            thread.start()

        async def consume():
            while len(found) < 60:
                found.update(await asyncio.to_thread(judge.poll, 5.0))

        asyncio.run(consume())
        for thread in threads:
            thread.join()
    assert all(found[key][0].value == key % 5 for key in found)


def test_a_judge_made_in_a_thread_outlives_it():
    made = []
    thread = threading.Thread(target=lambda: made.append(Judge([entry(length_reward())], workers=1)))
    thread.start()
    thread.join()
    with made[0] as judge:
        judge.submit(1, prompt(), [rollout("abc")])
        assert collect(judge, [1])[1][0].value == 3.0


def test_a_closed_judge_says_so():
    judge = Judge([entry(length_reward())], workers=1)
    judge.close()
    judge.close()
    with pytest.raises(RunError, match="closed"):
        judge.submit(1, prompt(), [rollout("a")])
    with pytest.raises(RunError, match="closed"):
        judge.poll(0.0)


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_rewards_need_distinct_names(names):
    with pytest.raises(ValueError, match="at least one reward"):
        Judge([entry(length_reward(), name) for name in names], workers=1)
