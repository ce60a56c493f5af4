"""How fast mathematics is judged: 5 000 distinct (gold answer, answer) pairs, in this process and through a reward pool.

    python -m benchmarks.rewards_math [--workers 2] [--pairs 5000]

The pairs are the collected cases with their numbers varied, none twice. What counts is the ratio: the pool's rate against ``workers`` times
the rate of one process, measured on a sample of the same pairs in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from collections.abc import Sequence

import numpy as np
from rlcore_plugin_math import rlcore_register_rewards
from rlcore_plugin_math.audit import read_corpus
from rlcore_plugin_math.options import BoxedOptions
from rlcore_plugin_math.rewards import BoxedReward

from rlcore.contracts.types import RewardInput
from rlcore.rewards.pool import RewardPool
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.rewards.worker_protocol import Call, Task

__all__ = ["measure", "pairs"]

_NUMBER = re.compile(r"[0-9]+")
_WARM = (
    ("x+1", "1+x+y"),
    (r"\sqrt{2}", r"\sqrt{3}"),
    ("x^2=2", "x^3=2"),
    (r"\begin{pmatrix}1\\x\end{pmatrix}", r"\begin{pmatrix}x\\1\end{pmatrix}"),
)
_DEADLINE = 10.0


def pairs(n: int, seed: int) -> list[tuple[str, str]]:
    """``n`` distinct (gold answer, answer), from every collected case in turn; a number that stands on both sides stays one number."""
    source = random.Random(seed)
    cases = [(case["gold"], case["answer"]) for case in read_corpus("math_cases")]
    found: dict[tuple[str, str], None] = {}
    while len(found) < n:
        for gold, answer in cases:
            renamed: dict[str, str] = {}
            found[_varied(gold, renamed, source), _varied(answer, renamed, source)] = None
    return list(found)[:n]


def _varied(text: str, renamed: dict[str, str], source: random.Random) -> str:
    def another(match: re.Match[str]) -> str:
        old = match.group()
        before = text[max(0, match.start() - 2) : match.start()]
        key = f"{old} {'^' in before or '_' in before}"
        if key not in renamed:
            length = len(old) + (0 if key.endswith("True") else source.choice((0, 1, 2)))
            renamed[key] = str(source.randint(1, 9)) + "".join(source.choices("0123456789", k=length - 1))
        return renamed[key]

    return _NUMBER.sub(another, text)


def measure(workers: int, n: int = 5000, seed: int = 4) -> dict[str, float]:
    """Rates in verdicts a second, in this process (on half of the pairs) and through a pool, and what one verdict costs in ms."""
    items = [_item(gold, answer) for gold, answer in pairs(n, seed)]
    seconds = _in_process(items[::2])
    elapsed = _through_pool(items, workers)
    rate, alone = len(items) / elapsed, len(seconds) / sum(seconds)
    low, high, highest = np.percentile(seconds, (50, 90, 99)) * 1e3
    return {
        "pairs": len(items),
        "workers": workers,
        "in_process_per_s": alone,
        "pool_per_s": rate,
        "ratio": rate / (workers * alone),
        "ms_p50": float(low),
        "ms_p90": float(high),
        "ms_p99": float(highest),
        "ms_mean": float(np.mean(seconds)) * 1e3,
        "load": os.getloadavg()[0],
    }


def _item(gold: str, answer: str) -> RewardInput:
    return RewardInput(messages=(), columns={"gt_answer": gold}, text=rf"so \boxed{{{answer}}}")


def _in_process(items: Sequence[RewardInput]) -> list[float]:
    reward = BoxedReward(BoxedOptions())
    for gold, answer in _WARM:
        reward.score(_item(gold, answer))
    seconds = []
    for item in items:
        started = time.perf_counter()
        reward.score(item)
        seconds.append(time.perf_counter() - started)
    return seconds


def _through_pool(items: Sequence[RewardInput], workers: int) -> float:
    """Seconds for all items, workers warm. Rewards are recycled as in a run."""
    spec = next(spec for spec in rlcore_register_rewards() if spec.name == "boxed")
    with RewardPool([RewardEntry(name="boxed", spec=spec, options=BoxedOptions())], workers=workers) as pool:
        _judge(pool, [_item(gold, answer) for gold, answer in _WARM] * workers * 4, first=0)
        started = time.perf_counter()
        _judge(pool, items, first=1_000_000)
        return time.perf_counter() - started


def _judge(pool: RewardPool, items: Sequence[RewardInput], *, first: int) -> None:
    tasks = [Task(task_id=first + place, reward=0, call=Call.SCORE, items=(item,), deadline=_DEADLINE) for place, item in enumerate(items)]
    pool.submit(tasks)
    scores = []
    while len(scores) < len(tasks):
        scores += [result.scores[0] for result in pool.poll(60.0)]
    failed = [score for score in scores if not score.outcome.judged]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(scores)} verdicts failed, the first: {failed[0].outcome} {failed[0].reason}")


def main() -> None:
    """Print the figures, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5000)
    arguments = parser.parse_args()
    figures = measure(arguments.workers, arguments.pairs)
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
