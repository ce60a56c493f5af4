"""Groups in, groups of scores out: routing, mixing, columns, budgets."""

import asyncio
import threading
from dataclasses import replace

import pytest
from kit_rewards import collect, entry, misbehaving, prompt, rollout

from rlcore.contracts.errors import DataError, InfrastructureError, RewardBudgetError, RunError
from rlcore.contracts.reward_interface import Reward
from rlcore.contracts.types import FinishReason, Outcome, Score
from rlcore.rewards.judge import Judge


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
        judge.submit(1, prompt(), [rollout("a"), rollout("abc"), rollout("?", FinishReason.ABORTED), rollout("ab")])
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
            judge.submit(key, prompt(), [rollout("abc", FinishReason.ABORTED)])
        found = collect(judge, range(60))
        judge.submit(100, prompt(), [])
        assert collect(judge, [100])[100] == ()
    (score,) = found[0]
    assert (score.outcome, score.in_loss, score.in_statistics) == (Outcome.INFRA, False, False)


def test_a_rollout_that_has_a_verdict_is_not_judged():
    verdict = Score.failed(Outcome.INFRA, "the environment failed")
    with Judge([entry(length_reward())], workers=1) as judge:
        judge.submit(1, prompt(), [replace(rollout("abc"), verdict=verdict), rollout("ab")])
        assert [score.value for score in collect(judge, [1])[1]] == [0.0, 2.0]
        judge.submit(2, prompt(), [replace(rollout("abc"), verdict=verdict)])
        assert collect(judge, [2])[2] == (verdict,)


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


def test_what_fails_in_an_evaluation_spends_no_budget_and_enters_no_figure():
    strict = entry(misbehaving(), budget={Outcome.ERROR: 0.0})
    with Judge([strict], workers=1, error_budget=0.0) as judge:
        judge.submit(1, prompt(), [rollout("raise")] * 9, counted=False)
        assert {score.outcome for score in collect(judge, [1])[1]} == {Outcome.ERROR}
        judge.submit(2, prompt(), [rollout("fine")])
        collect(judge, [2])
        figures = judge.metrics()
        assert figures["reward/outcome/ok"] == 1.0, figures
        assert "reward/outcome/error" not in figures
        judge.submit(3, prompt(), [rollout("raise")])
        with pytest.raises(RewardBudgetError, match=r"1 of the last 2 "):  # the one of the evaluation is not among them
            collect(judge, [3])


def test_a_timeout_is_booked_with_the_seconds_that_it_was_given():
    with Judge([entry(misbehaving(), deadline=0.4)], workers=1, error_budget=1.0) as judge:
        judge.submit(1, prompt(), [rollout("hang")])
        (score,) = collect(judge, [1])[1]
        figures = judge.metrics()
    assert score.outcome is Outcome.TIMEOUT
    assert (figures["reward/latency_p50"], figures["reward/timeouts"]) == (0.4, 1.0)


def test_rows_that_cannot_be_judged_are_named_before_training():
    with Judge([entry(column_reward(), "columns"), entry(length_reward(), "length")], workers=2) as judge:
        judge.check([prompt(n, gold="a") for n in range(50)])
        judge.check([prompt(0, gold="", reward="length")])
        rows = [prompt(n, gold="" if n % 10 == 3 else "a") for n in range(50)]
        with pytest.raises(DataError) as caught:
            judge.check(rows)
        assert str(caught.value).startswith("train.jsonl:4: reward columns cannot score this row: gold is empty; train.jsonl:14: ")
        assert str(caught.value).endswith("and 2 more rows")
        with pytest.raises(DataError, match=r"train.jsonl:1: reward columns cannot score this row: KeyError: 'gold'"):
            judge.check([prompt(0)])


def test_one_bad_row_among_many_is_found_wherever_it_is(monkeypatch):
    monkeypatch.setattr("rlcore.rewards.judge._ROWS_AT_ONCE", 120)
    told = []
    with Judge([entry(column_reward(), "columns")], workers=2) as judge:
        for place in (0, 49, 50, 119, 120, 249):
            rows = [prompt(n, gold="" if n == place else "a") for n in range(250)]
            assert list(judge.unscorable(rows, told.append)) == [f"train.jsonl:{place + 1}"]
        rows = [prompt(n, gold="" if n % 7 == 0 else "a") for n in range(250)]
        assert list(judge.unscorable(rows))[::-1] == [f"train.jsonl:{n + 1}" for n in range(0, 250, 7)]
    assert told[:3] == [120, 240, 250]


def test_slow_checks_of_good_rows_are_no_complaint():
    class Slow(Reward):
        def check(self, columns):
            import time

            time.sleep(0.05)

        def score(self, item):
            raise NotImplementedError

    with Judge([entry(Slow, requires=("gold",), deadline=1.0)], workers=2) as judge:  # a task of many rows takes longer than that
        judge.check([prompt(n, gold="a") for n in range(60)])


def test_a_handful_of_bad_rows_is_enough_to_say_so_and_the_rest_is_dropped():
    class Checking(Reward):
        def check(self, columns):
            import time

            time.sleep(600 if columns["gold"] == "hang" else 0)
            return "gold is empty"

        def score(self, item):
            raise NotImplementedError

    rows = [prompt(n, gold="" if n < 10 else "hang") for n in range(40)]
    with Judge([entry(Checking, requires=("gold",), deadline=600.0)], workers=1) as judge:
        with pytest.raises(DataError, match=r"train.jsonl:3: .*; and at least 7 more rows"):
            judge.check(rows)
        assert [list(dispatcher._queue._waiting) for dispatcher in judge.pool._dispatchers] == [[]], "still to be checked"


def test_a_key_in_use_is_refused():
    with Judge([entry(misbehaving())], workers=1) as judge:
        judge.submit(1, prompt(), [rollout("slow")])
        judge.submit(2, prompt(), [])  # judged at once, and not yet fetched
        for key in (1, 2):
            with pytest.raises(ValueError, match=f"group {key} is already being scored"):
                judge.submit(key, prompt(), [rollout("slow")])


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


def outcomes():
    """The outcome that the text names."""

    def reward(item):
        from rlcore.contracts.types import Outcome, Score

        if item.text == "raise":
            raise ValueError("at fault")
        return Score(value=3.0, accuracy=0.0, outcome=Outcome(item.text), reason="as asked")

    return reward


def test_a_policy_masks_what_would_train():
    with Judge([entry(outcomes(), policy={Outcome.UNPARSEABLE: "mask"})], workers=1) as judge:
        judge.submit(1, prompt(), [rollout("unparseable"), rollout("wrong"), rollout("ok")])
        masked, wrong, right = collect(judge, [1])[1]
        shares = judge.metrics()
    assert (masked.outcome, masked.value, masked.in_loss, masked.in_statistics) == (Outcome.UNPARSEABLE, 3.0, False, False)
    assert wrong.in_loss
    assert right.in_loss
    assert shares["reward/outcome/unparseable"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("text", "outcome"), [("raise", Outcome.ERROR), ("malformed", Outcome.MALFORMED)])
def test_a_policy_stops_the_run_at_the_first(text, outcome):
    with Judge([entry(outcomes(), "mine", policy={outcome: "stop"})], workers=1, error_budget=1.0) as judge:
        judge.submit(1, prompt(), [rollout(text)], counted=False)
        assert collect(judge, [1])[1][0].outcome is outcome, "an evaluation ends no run"
        judge.submit(2, prompt(6), [rollout("ok"), rollout(text)])
        expected = (
            rf'reward mine ended with {outcome} on a response to train.jsonl:7 .* {outcome} = "stop" ends the run; .* {outcome} = "mask"'
        )
        with pytest.raises(RewardBudgetError, match=expected):
            collect(judge, [2])


def test_a_budget_of_one_reward_names_what_to_change():
    entries = [entry(length_reward(), "length"), entry(outcomes(), "mine", budget={Outcome.ERROR: 0.0})]
    with Judge(entries, workers=1, error_budget=1.0) as judge:
        judge.submit(1, prompt(), [rollout("raise")])
        words = r"1 of the last 1 verdicts of reward mine ended with error, .*budget = \{ error = 0 \}.*at fault; .* raise error in budget"
        with pytest.raises(RewardBudgetError, match=words):
            collect(judge, [1])


def test_the_first_tracebacks_of_a_reward_are_kept_with_their_text():
    def bad(item):
        if item.text.startswith("a"):
            return 1 // 0
        return {}[item.text]

    with Judge([entry(bad, "mine")], workers=1, error_budget=1.0) as judge:
        judge.submit(1, prompt(2), [rollout(text) for text in ("a" * 5000, "ab", "b", "c")])
        collect(judge, [1])
        faults = sorted(judge.take_faults(), key=lambda fault: fault["reason"])
        assert judge.take_faults() == []
    assert [(fault["reward"], fault["row"], fault["reason"]) for fault in faults] == [
        ("mine", "train.jsonl:3", "KeyError: 'b'"),
        ("mine", "train.jsonl:3", "ZeroDivisionError: integer division or modulo by zero"),
    ]
    assert faults[1]["text"] == "a" * 2000
    lines = faults[1]["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ZeroDivisionError: integer division or modulo by zero"
    assert not any("rlcore/rewards" in line for line in lines), "the engine's own frames help nobody"


def test_a_check_without_its_machine_blames_no_row():
    class Unready(Reward):
        def score(self, item):
            raise NotImplementedError

        def check(self, columns):
            from rlcore.contracts.errors import SandboxError

            raise SandboxError("no sandbox")

    with (
        Judge([entry(Unready, "mine")], workers=1) as judge,
        pytest.raises(InfrastructureError, match=r"reward mine could not check train.jsonl:1, twice: SandboxError: no sandbox"),
    ):
        judge.check([prompt(0)])


def noticing(text):
    class Noticing(Reward):
        def open(self):
            self.level = text

        def notice(self):
            return f"judges\n  {self.level}" if self.level else ""

        def score(self, item):
            raise NotImplementedError

    return Noticing


def test_notices_are_given_once_whatever_the_number_of_workers():
    entries = [entry(noticing("here"), "a"), entry(noticing(""), "b"), entry(noticing("there"), "c")]
    with Judge(entries, workers=2) as judge:
        assert judge.notices == ("reward a: judges here", "reward c: judges there")
