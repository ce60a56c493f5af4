"""The same judge inside a Ray actor, an asynchronous Ray actor, an event loop and a thread: it neither hangs nor leaves a process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from rlcore.api import FinishReason, Message, Outcome, Prompt, RewardInput, RewardSpec, Rollout, Segment
from rlcore.rewards.judge import Judge
from rlcore.rewards.reward_entry import RewardEntry
from tests.integration.ray.small_cluster import short_folder

EXPECTED = [("ok", 3.0), ("timeout", 0.0), ("infra", 0.0), ("error", 0.0), ("ok", 2.0)]


def _entry() -> RewardEntry:
    def reward(item: RewardInput) -> float:
        import os
        import time

        if item.text == "hang":
            time.sleep(600)
        if item.text == "die":
            os._exit(1)
        if item.text == "raise":
            raise ValueError
        return float(len(item.text))

    spec = RewardSpec(name="mine", target="unpackaged:target", summary="")
    return RewardEntry(name="mine", spec=spec, deadline=0.5, payload=cloudpickle.dumps(reward))


def _submit(judge: Judge) -> None:
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[-0.1], versions=[0], policy_mask=[True])
    texts = ["abc", "hang", "die", "raise", "ab"]
    rollouts = [Rollout(prompt_id="p", index=0, segments=(segment,), text=text, finish=FinishReason.STOP) for text in texts]
    judge.submit(0, Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="?"),)), rollouts)


def _said(judge: Judge, poll: Callable[[float], Any]) -> list[tuple[str, float]]:
    ((_, scores),) = poll(60.0)
    return [(Outcome(score.outcome).value, score.value) for score in scores]


def _whole() -> list[tuple[str, float]]:
    """A judge from its making to its end, in one call."""
    with Judge([_entry()], workers=2, error_budget=1.0) as judge:
        _submit(judge)
        return _said(judge, judge.poll)


def _gone(pids: list[int]) -> bool:
    for _ in range(1000):
        if not any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids):
            return True
        time.sleep(0.01)
    return False


class Plain:
    """An actor that keeps a judge. Made in a thread that ends at once, which the workers must survive."""

    def __init__(self) -> None:
        made: list[Judge] = []
        thread = threading.Thread(target=lambda: made.append(Judge([_entry()], workers=2, error_budget=1.0)))
        thread.start()
        thread.join()
        self.judge = made[0]

    def judged(self) -> list[tuple[str, float]]:
        _submit(self.judge)
        return _said(self.judge, self.judge.poll)

    def pids(self) -> list[int]:
        return [worker.pid for dispatcher in self.judge.pool._dispatchers for worker in list(dispatcher._workers)]


class Asynchronous:
    """An actor whose methods are coroutines: the judge polled in a thread, and directly between other work."""

    def __init__(self) -> None:
        self.judge = Judge([_entry()], workers=2, error_budget=1.0)
        self.turns = 0

    async def judged(self) -> list[tuple[str, float]]:
        _submit(self.judge)
        ticking = asyncio.create_task(self._tick())
        ((_, scores),) = await asyncio.to_thread(self.judge.poll, 60.0)
        ticking.cancel()
        assert self.turns > 3, "the loop was held up"
        return [(Outcome(score.outcome).value, score.value) for score in scores]

    async def judged_directly(self) -> list[tuple[str, float]]:
        _submit(self.judge)
        while not (groups := self.judge.poll(0.0)):
            await asyncio.sleep(0.01)
        return [(Outcome(score.outcome).value, score.value) for score in groups[0][1]]

    async def _tick(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0.02)

    async def pids(self) -> list[int]:
        return [worker.pid for dispatcher in self.judge.pool._dispatchers for worker in list(dispatcher._workers)]


class Hostile:
    """An asynchronous actor that judges hostile answers in mathematics, each alone."""

    def __init__(self, deadline: float) -> None:
        from rlcore_plugin_math import rlcore_register_rewards
        from rlcore_plugin_math.options import BoxedOptions

        spec = next(spec for spec in rlcore_register_rewards() if spec.name == "boxed")
        options = BoxedOptions(time_limit=1.5, max_chars=10_000)  # so that the other guards are tried too
        entry = RewardEntry(name="boxed", spec=spec, deadline=deadline, options=options)
        self.judge = Judge([entry], workers=1, error_budget=0.0)

    async def judged(self, rows: list[tuple[str, str, str]]) -> list[tuple[str, str, float]]:
        """(name, outcome, value) a row."""
        found = []
        segment = Segment(context_ids=[1], token_ids=[2], logprobs=[-0.1], versions=[0], policy_mask=[True])
        for key, (name, gold, answer) in enumerate(rows):
            prompt = Prompt(prompt_id=str(key), index=key, messages=(Message(role="user", content="?"),), columns={"gt_answer": gold})
            rollout = Rollout(prompt_id="p", index=0, segments=(segment,), text=rf"\boxed{{{answer}}}", finish=FinishReason.STOP)
            self.judge.submit(key, prompt, [rollout])
            ((_, (score,)),) = await asyncio.to_thread(self.judge.poll, 30.0)
            found.append((name, Outcome(score.outcome).value, score.value))
        return found


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray of this machine, and nothing of it afterwards."""
    import sys

    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # its workers cannot import a test
    with short_folder() as folder:
        ray.init("local", _temp_dir=str(folder), num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        try:
            yield ray
        finally:
            ray.shutdown()
            ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.full
def test_in_a_ray_actor(ray: Any) -> None:
    actor = ray.remote(num_cpus=1)(Plain).remote()
    assert ray.get(actor.judged.remote(), timeout=120) == EXPECTED
    assert ray.get(actor.judged.remote(), timeout=120) == EXPECTED
    pids = ray.get(actor.pids.remote(), timeout=60)
    ray.kill(actor)
    assert _gone(pids), "the workers outlived the actor"


@pytest.mark.full
def test_in_an_asynchronous_ray_actor(ray: Any) -> None:
    actor = ray.remote(num_cpus=1)(Asynchronous).remote()
    assert ray.get(actor.judged.remote(), timeout=120) == EXPECTED
    assert ray.get(actor.judged_directly.remote(), timeout=120) == EXPECTED
    pids = ray.get(actor.pids.remote(), timeout=60)
    ray.kill(actor)
    assert _gone(pids), "the workers outlived the actor"


@pytest.mark.nightly
@pytest.mark.full
def test_hostile_answers_in_an_asynchronous_ray_actor(ray: Any) -> None:
    """Every row ends by the rules of its own reward, none by an accident of the engine or at its deadline."""
    from rlcore_plugin_math.audit import hostile_rows

    rows = hostile_rows()
    actor = ray.remote(num_cpus=1)(Hostile).remote(60.0)
    found = ray.get(actor.judged.remote(rows), timeout=280)
    ray.kill(actor)
    print(f"{len(rows)} rows, outcomes {Counter(row[1] for row in found)}")
    assert [name for name, *_ in found] == [name for name, _, _ in rows]
    assert {outcome for _, outcome, _ in found} <= {"wrong", "malformed", "unparseable"}
    assert {value for *_, value in found} == {0.0}


@pytest.mark.full
def test_in_a_ray_task(ray: Any) -> None:
    assert ray.get(ray.remote(num_cpus=1)(_whole).remote(), timeout=120) == EXPECTED


@pytest.mark.full
def test_in_an_event_loop_and_in_threads() -> None:
    async def both() -> None:
        actor = Asynchronous()
        with actor.judge:
            assert await actor.judged() == EXPECTED
            assert await actor.judged_directly() == EXPECTED

    asyncio.run(both())
    plain = Plain()
    with plain.judge:
        assert plain.judged() == EXPECTED
