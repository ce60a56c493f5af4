"""Twenty thousand items: no descriptor, process or memory is left behind. With accidents among them, which replace workers all the time;
and without, so that the same processes live through all of it."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from rlcore.api import AsyncReward, FinishReason, Message, Outcome, Prompt, RewardInput, RewardSpec, Rollout, Score, Segment
from rlcore.rewards.judge import Judge
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.rewards.worker_protocol import WorkerLimits

pytestmark = pytest.mark.serial  # it measures memory, descriptors and processes over minutes

_MEGABYTE = 1 << 20
_PROMPT = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="?"),))
_SEGMENT = Segment(context_ids=[1], token_ids=[2], logprobs=[-0.1], versions=[0], policy_mask=[True])


def _plain() -> Callable[[RewardInput], float]:
    def plain(item: RewardInput) -> float:
        import os
        import time

        if item.text == "die":
            os._exit(1)
        if item.text == "hang":
            time.sleep(600)
        if item.text == "raise":
            raise ValueError
        return float(len(item.text))

    return plain


def _network() -> type[AsyncReward]:
    class Network(AsyncReward):
        backoff = 0.001

        async def score_async(self, item: RewardInput) -> Score:
            import asyncio

            await asyncio.sleep(0)
            if item.text == "raise":
                raise ConnectionError
            return Score(value=1.0)

    return Network


def _entry(name: str, target: Any) -> RewardEntry:
    spec = RewardSpec(name=name, target="unpackaged:target", summary="")
    return RewardEntry(name=name, spec=spec, deadline=1.0, payload=cloudpickle.dumps(target))


def _rollouts(texts: list[str]) -> list[Rollout]:
    return [Rollout(prompt_id="p", index=0, segments=(_SEGMENT,), text=text, finish=FinishReason.STOP) for text in texts]


def _judge(judge: Judge, first: int, groups: int, *, accidents: bool = True) -> Counter[Outcome]:
    """Groups of ten; in one of fifty an accident."""
    for key in range(first, first + groups):
        last = ("die", "raise", "hang")[key // 50 % 3] if accidents and key % 50 == 0 else "fine"
        judge.submit(key, _PROMPT, _rollouts([*["x" * (key % 7)] * 9, last]))
    return _all_scores(judge, groups)


def _all_scores(judge: Judge, groups: int) -> Counter[Outcome]:
    seen: Counter[Outcome] = Counter()
    while groups > 0:
        for _, scores in judge.poll(60.0):
            seen.update(score.outcome for score in scores)
            groups -= 1
    judge.metrics()
    return seen


def _children() -> set[int]:
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            found |= {int(pid) for pid in path.read_text().split()}
    return found


def _settled(workers: int, before: set[int]) -> list[int]:
    """The children of the pool once there are as many as there should be, and for half a second the same: one that is just being started
    has descriptors in this process that go again."""
    last, same = set[int](), 0
    for _ in range(6000):
        found = _children() - before
        same = same + 1 if found == last and len(found) == workers else 0
        if same > 25:
            return sorted(found)
        last = found
        time.sleep(0.02)
    raise AssertionError(f"{len(_children() - before)} processes, {workers} expected")


def _resident(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _figures(before: set[int], workers: int) -> dict[str, float]:
    children = _settled(workers, before)
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "descriptors of workers": max(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in children),
        "memory, MB": _resident("self") / _MEGABYTE,
        "memory of the largest worker, MB": max(_resident(pid) for pid in children) / _MEGABYTE,
    }


def _settle_memory(
    judge: Judge, waves: Callable[[Judge, int], Counter[Outcome]], before: set[int], *, workers: int, limit: float = 10.0
) -> None:
    """One wave to warm up, ten more, and the same processes hold what they held, up to ``limit`` MB of memory."""
    waves(judge, 0)
    first, pids = _figures(before, workers), _settled(workers, before)
    seen: Counter[Outcome] = Counter()
    for wave in range(1, 11):
        seen += waves(judge, wave)
    last = _figures(before, workers)
    print({name: (round(first[name], 1), round(last[name], 1)) for name in first})
    assert sum(count for outcome, count in seen.items() if outcome.judged) == sum(seen.values()) == 20_000
    assert _settled(workers, before) == pids, "a worker was replaced"
    assert last["descriptors"] <= first["descriptors"]
    assert last["descriptors of workers"] == first["descriptors of workers"]
    assert last["memory, MB"] - first["memory, MB"] < 10
    assert last["memory of the largest worker, MB"] - first["memory of the largest worker, MB"] < limit


@pytest.mark.full
def test_twenty_thousand_items_leave_nothing_behind() -> None:
    before = _children()
    with Judge([_entry("plain", _plain()), _entry("network", _network())], workers=2, error_budget=1.0) as judge:
        _judge(judge, 0, 200)
        first = _figures(before, workers=4)  # two, one to spare since the first accident, and the host
        seen: Counter[Outcome] = Counter()
        for wave in range(1, 11):  # as a run does; all at once the queue would be the peak that is measured
            seen += _judge(judge, 200 * wave, 200)
        last = _figures(before, workers=4)
    print({name: (round(first[name], 1), round(last[name], 1)) for name in first})
    assert sum(seen.values()) == 20_000
    assert sum(count for outcome, count in seen.items() if outcome is not Outcome.OK) == 40
    assert last["descriptors"] <= first["descriptors"]
    assert last["descriptors of workers"] <= first["descriptors of workers"]
    assert last["memory, MB"] - first["memory, MB"] < 10
    assert last["memory of the largest worker, MB"] - first["memory of the largest worker, MB"] < 10
    assert _children() <= before


@pytest.mark.full
def test_processes_that_live_through_twenty_thousand_items_do_not_grow() -> None:
    before = _children()
    entries = [_entry("plain", _plain()), _entry("network", _network())]
    with Judge(entries, workers=2, error_budget=0.0, limits=WorkerLimits(items=1_000_000)) as judge:
        _settle_memory(judge, lambda judge, wave: _judge(judge, 200 * wave, 200, accidents=False), before, workers=3)
    assert _children() <= before


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_workers_that_judge_twenty_thousand_formulas_do_not_grow() -> None:
    """Distinct pairs, so that nothing is answered from a cache."""
    from rlcore_plugin_math import rlcore_register_rewards
    from rlcore_plugin_math.options import BoxedOptions

    from benchmarks.rewards_math import pairs

    before = _children()
    spec = next(spec for spec in rlcore_register_rewards() if spec.name == "boxed")
    entry = RewardEntry(name="boxed", spec=spec, deadline=30.0, options=BoxedOptions())
    texts = pairs(22_000, seed=9)

    def wave(judge: Judge, number: int) -> Counter[Outcome]:
        for key in range(2000 * number, 2000 * (number + 1)):
            gold, answer = texts[key]
            prompt = Prompt(prompt_id=str(key), index=key, messages=_PROMPT.messages, columns={"gt_answer": gold})
            judge.submit(key, prompt, _rollouts([rf"so \boxed{{{answer}}}"]))
        return _all_scores(judge, 2000)

    with Judge([entry], workers=2, error_budget=0.0, limits=WorkerLimits(items=1_000_000)) as judge:
        _settle_memory(judge, wave, before, workers=2, limit=20.0)  # sympy fills its caches
    assert _children() <= before
