"""The life of a producer, without Ray: weights before leases, letters in any order, evaluations by one version, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore_plugin_workers import producer_loop
from rlcore_plugin_workers.producer_loop import CommandQueue, JudgeClient

from rlcore.api import Bucket, Prompt, Rollout, RunError, Sampling, Score, Snapshot, WeightsError
from rlcore.api.runtime import GroupJob, ProducedGroup, RewardBudgetError
from rlcore.api.weights import GroupBrokenError
from rlcore.testing import make_rollout
from tests.producer_stage import PROMPTS, SECONDS, Stage, Told, snapshot, until


def evaluate(stage: Stage, version: int) -> Future[tuple[int, list[ProducedGroup]]]:
    jobs = tuple(
        GroupJob(key=-1 - n, prompt=PROMPTS[n], samplings=(Sampling(max_new_tokens=4),), noise=(0, 9, n), counted=False) for n in range(3)
    )
    return stage.loop.evaluate(jobs, version)


def test_weights_come_before_leases_and_the_lease_says_which(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert not stage.endpoints.asked
    stage.receiver.hand(snapshot(3))
    stage.endpoints.until(lambda: bool(stage.endpoints.asked))
    assert stage.endpoints.asked[0][:2] == (2, 3)
    assert (stage.endpoints.versions, stage.receiver.released) == ([3], [3])
    stage.stop()


def test_leases_become_groups_and_more_are_asked_for(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(0))
    stage.grant(0, 1)
    stage.endpoints.until(lambda: len(stage.endpoints.groups) == 2)
    assert sorted(arrival.delivery.lease_id for arrival in stage.endpoints.arrivals) == [0, 1]
    pairs = zip(stage.endpoints.arrivals, stage.endpoints.groups, strict=True)
    assert all(arrival.tokens == sum(rollout.length for rollout in group.rollouts) for arrival, group in pairs)
    stage.endpoints.until(lambda: bool(stage.endpoints.asked))
    stage.stop()


def test_newer_weights_are_taken_while_it_generates(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(0))
    stage.grant(0)
    stage.receiver.hand(snapshot(1))
    stage.endpoints.until(lambda: stage.endpoints.versions == [0, 1])
    stage.stop()


def test_an_evaluation_waits_for_its_version_and_holds_newer_weights_off(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(0))
    done = evaluate(stage, 1)
    stage.endpoints.until(lambda: stage.endpoints.versions == [0])
    assert not done.done()
    stage.receiver.hand(snapshot(1))
    version, results = done.result(SECONDS)
    assert (version, len(results)) == (1, 3)
    assert {int(v) for produced in results for r in produced.rollouts for v in r.segments[0].versions} == {1}
    stage.stop()


def test_an_evaluation_is_of_the_version_that_is_served_although_a_newer_one_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is in a long call while the evaluation is asked for and the next version arrives."""
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(1))
    stage.endpoints.until(lambda: stage.endpoints.versions == [1])
    came, go, poll = threading.Event(), threading.Event(), stage.producer._engine.poll

    def held(timeout: float) -> list[Rollout]:
        came.set()
        assert go.wait(SECONDS)
        return poll(timeout)

    monkeypatch.setattr(stage.producer._engine, "poll", held)
    stage.grant(0)
    assert came.wait(SECONDS)
    done = evaluate(stage, 1)
    stage.receiver.hand(snapshot(2))
    go.set()
    assert done.result(SECONDS)[0] == 1
    stage.endpoints.until(lambda: stage.endpoints.versions == [1, 2])
    stage.stop()


def test_it_sleeps_once_nothing_is_under_way_and_wakes_with_new_weights(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(0))
    stage.grant(0)
    stage.loop.sleep().result(SECONDS)
    assert len(stage.endpoints.groups) == 1
    assert stage.producer.asleep
    stage.receiver.hand(snapshot(1))
    stage.endpoints.until(lambda: stage.endpoints.versions == [0, 1])
    stage.stop()


def test_its_pulse_ages_while_the_engine_hangs_and_not_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(0))
    stage.endpoints.until(lambda: bool(stage.endpoints.asked))
    until(lambda: stage.loop.pulse.age == 0.0)  # it rests
    came, go = threading.Event(), threading.Event()

    def hangs(timeout: float) -> list[Any]:
        came.set()
        go.wait()
        return []

    poll = stage.producer._engine.poll
    monkeypatch.setattr(stage.producer._engine, "poll", hangs)
    stage.grant(0)
    assert came.wait(SECONDS)
    first = stage.loop.pulse.age
    until(lambda: stage.loop.pulse.age > first + 0.05)
    assert " in " in stage.loop.pulse.where()
    monkeypatch.setattr(stage.producer._engine, "poll", poll)
    go.set()
    stage.endpoints.until(lambda: len(stage.endpoints.groups) == 1)
    stage.stop()


def test_no_lease_means_the_end_of_leases_but_not_of_evaluations(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(0))
    stage.grant()
    assert evaluate(stage, 0).result(SECONDS)[0] == 0
    assert not stage.endpoints.asked
    stage.stop()


def test_what_the_judge_raises_ends_it(tmp_path: Path) -> None:
    def broken(prompt: Prompt, rollouts: Sequence[Rollout], counted: bool, then: Any) -> None:
        then(None, RewardBudgetError("too many"))

    stage = Stage(tmp_path, judge=broken)
    stage.receiver.hand(snapshot(0))
    stage.grant(0)
    with pytest.raises(RewardBudgetError, match="too many"):
        stage.ended.result(SECONDS)


def test_weights_that_are_not_what_the_trainer_has_end_it_by_name(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(2, wrong_probe=True))
    with pytest.raises(WeightsError, match=r"producer p does not serve version 2"):
        stage.ended.result(SECONDS)


def test_a_transfer_that_failed_ends_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.receiver.error = WeightsError("tensor 'a' arrived damaged")
    stage.commands.wake()
    with pytest.raises(WeightsError, match="damaged"):
        stage.ended.result(SECONDS)


def test_a_schedule_that_is_gone_ends_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(0))
    stage.endpoints.until(lambda: bool(stage.endpoints.asked))
    stage.endpoints.asked.pop(0)[2](None, ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        stage.ended.result(SECONDS)


def test_in_waves_what_was_leased_together_is_delivered_together_and_in_order(tmp_path: Path) -> None:
    """However the verdicts come in."""
    asked: list[Any] = []

    def late(prompt: Prompt, rollouts: Sequence[Rollout], counted: bool, then: Any) -> None:
        asked.append((prompt.index, lambda: then(tuple(Score(value=1.0, accuracy=1.0) for _ in rollouts), None)))

    stage = Stage(tmp_path, in_flight=3, judge=late, alternating=True)
    stage.receiver.hand(snapshot(0))
    stage.grant(0, 1, 2)
    until(lambda: len(asked) == 3)
    for left, (_, answer) in zip((2, 1, 0), sorted(asked, key=lambda one: one[0], reverse=True), strict=True):
        assert not stage.endpoints.brought
        answer()
        until(lambda left=left: len(stage.producer._judging) == left)  # type: ignore[misc]
    stage.endpoints.until(lambda: bool(stage.endpoints.brought))
    assert stage.endpoints.brought == [[0, 1, 2]]
    stage.stop()


def test_a_producer_without_work_says_what_it_waits_for(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.loop._waits_for() == "waiting for weights"
    stage.receiver.hand(snapshot(0))
    stage.endpoints.until(lambda: bool(stage.endpoints.asked))
    assert stage.loop._waits_for() == "back-pressure"
    stage.grant()
    until(lambda: stage.loop._waits_for() == "waiting for data")
    stage.loop.sleep()
    until(lambda: stage.loop._waits_for() == "waiting for weights")
    stage.stop()


def test_an_engine_whose_group_broke_generates_nothing_until_a_version_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had under way goes on afterwards; evaluations, leases and sleep wait, too."""
    stage = Stage(tmp_path)
    stage.receiver.hand(snapshot(0))
    engine = stage.producer._engine
    broken, polls, poll, receive = threading.Event(), list[float](), engine.poll, engine.receive

    def breaks(bucket: Bucket) -> None:
        broken.set()
        raise GroupBrokenError("a member was lost")

    def noted(timeout: float) -> list[Any]:
        assert not broken.is_set(), "a torn engine was asked for tokens"
        polls.append(timeout)
        time.sleep(timeout)
        return []

    monkeypatch.setattr(engine, "poll", noted)
    stage.grant(0)
    until(lambda: bool(polls))
    monkeypatch.setattr(engine, "receive", breaks)
    once = stage.receiver.newer_than

    def newer_than(version: int) -> Snapshot | None:
        found = once(version)
        if found is not None:
            stage.receiver.snapshot = None  # as a transfer of engines' own: once for each group
        return found

    monkeypatch.setattr(stage.receiver, "newer_than", newer_than)
    stage.receiver.hand(snapshot(1))
    assert broken.wait(SECONDS)
    until(lambda: stage.producer.torn)
    asleep = stage.loop.sleep()
    done = evaluate(stage, 0)
    until(lambda: not stage.commands._pending and stage.loop.pulse.age == 0.0)  # it waits
    assert not stage.ended.done()
    assert not asleep.done()
    assert not done.done()
    assert stage.endpoints.versions == [0]
    assert stage.receiver.broke == [-1]  # of the host: no epoch
    monkeypatch.setattr(engine, "receive", receive)
    monkeypatch.setattr(engine, "poll", poll)
    broken.clear()
    stage.receiver.hand(snapshot(1))
    stage.endpoints.until(lambda: len(stage.endpoints.groups) == 1)
    assert done.result(SECONDS)[0] == 1
    asleep.result(SECONDS)
    assert stage.endpoints.versions == [0, 1]
    stage.stop()


@pytest.mark.parametrize("method", ["begin_update", "finish_update"])
def test_a_producer_whose_group_broke_ends_if_no_version_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Torn, or with nothing else to do; it names the option."""
    stage = Stage(tmp_path)
    stage.loop.weights_seconds = 0.3
    stage.receiver.hand(snapshot(0))
    stage.endpoints.until(lambda: stage.endpoints.versions == [0])

    def breaks(*_: Any) -> Any:
        stage.receiver.snapshot = None
        raise GroupBrokenError("a member was lost")

    monkeypatch.setattr(stage.producer._engine, method, breaks)
    stage.receiver.hand(snapshot(1))
    error = stage.ended.exception(SECONDS)
    assert isinstance(error, RunError)
    assert "the group in which its engine receives weights broke, and the weight transfer brought no complete version within" in str(error)
    assert "--weights-deadline" in str(error)


def test_the_time_after_a_group_that_broke_begins_anew_with_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer weights wait for an evaluation, so that no version could come meanwhile."""
    stage, clock = Stage(tmp_path), [1.0]
    monkeypatch.setattr(producer_loop, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    stage.loop.weights_seconds = 20.0
    stage.receiver.hand(snapshot(0))
    stage.endpoints.until(lambda: stage.endpoints.versions == [0])
    engine = stage.producer._engine
    begin, poll = engine.begin_update, engine.poll

    def breaks_once(*_: Any) -> None:
        monkeypatch.setattr(engine, "begin_update", begin)
        stage.receiver.snapshot = None
        raise GroupBrokenError("a member was lost")

    def still_at_it(timeout: float) -> list[Any]:
        time.sleep(timeout)
        return []

    monkeypatch.setattr(engine, "begin_update", breaks_once)
    monkeypatch.setattr(engine, "poll", still_at_it)
    stage.receiver.hand(snapshot(1))
    until(lambda: stage.receiver.broke == [-1])
    done = evaluate(stage, 0)
    until(lambda: stage.loop._evaluation is not None)
    clock[0] = 101.0
    until(lambda: stage.loop._broke_at == 101.0)
    monkeypatch.setattr(engine, "poll", poll)
    assert done.result(SECONDS)[0] == 0
    stage.receiver.hand(snapshot(1))
    stage.endpoints.until(lambda: stage.endpoints.versions == [0, 1])
    stage.stop()


def test_a_whole_version_ends_the_wait_after_a_group_that_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path)
    stage.loop.weights_seconds = 0.3
    stage.receiver.hand(snapshot(0))
    stage.endpoints.until(lambda: stage.endpoints.versions == [0])
    engine = stage.producer._engine
    finish = engine.finish_update

    def breaks_once() -> int:
        monkeypatch.setattr(engine, "finish_update", finish)
        stage.receiver.on_news()
        raise GroupBrokenError("a member was lost")

    monkeypatch.setattr(engine, "finish_update", breaks_once)
    stage.receiver.hand(snapshot(1))
    stage.endpoints.until(lambda: stage.endpoints.versions == [0, 1])
    with pytest.raises(TimeoutError):
        stage.ended.exception(0.6)
    stage.stop()


@pytest.mark.parametrize("reads_tokens", [True, False])
def test_a_judge_gets_tokens_only_if_a_reward_reads_them(reads_tokens: bool) -> None:
    told: list[int] = []

    def score(prompt: Prompt, rollouts: Sequence[Rollout], counted: bool, then: Any) -> None:
        told.extend(len(rollout.token_ids) for rollout in rollouts)
        then((Score(value=1.0),), None)

    client = JudgeClient(Told(score=score), CommandQueue(), reads_tokens=reads_tokens)
    client.submit(0, PROMPTS[0], [make_rollout([4], [1, 2, 3])])
    assert client.poll(0.0) == [(0, (Score(value=1.0),))]
    assert told == ([3] if reads_tokens else [0])
