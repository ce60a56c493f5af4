"""`make bench-rewards`: what judging costs, through the real pool of two worker processes. The last line is one JSON object.

* math: 5 000 distinct pairs, against the same reward called in this process;
* simple: rows whose verdict costs nothing, so that what is measured is the engine: CPU milliseconds a row, of all processes;
* code: a trivial program, fully jailed, at each level that this machine has;
* numpy: a program that imports it, in the jail at each level, on one core;
* hanging: 5 % of the items never return. The others may lose the deadline's worker time and nothing else, so the bound is
  workers / (cost of a useful item + share of hanging x deadline x 2, for they are tried twice, per useful item).
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlcore_plugin_code import rlcore_register_rewards
from rlcore_plugin_code.options import CodeOptions

from benchmarks import rewards_math, rewards_numpy
from rlcore.api import FinishReason, Message, Prompt, RewardInput, RewardSpec, Rollout, Score, Segment
from rlcore.api.sandbox import Level, SandboxOptions
from rlcore.contracts.errors import PluginError
from rlcore.rewards.judge import Judge
from rlcore.rewards.reward_entry import RewardEntry

WORKERS = 2
RUNS = 1000
SIMPLE = 20_000
HANGING, ITEMS, EVERY, DEADLINE, COST = "hang", 1000, 20, 2.0, 0.01


def main() -> None:
    """Run the parts and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["math", "simple", "code", "numpy", "hanging"], help="one part")
    only = parser.parse_args().only
    figures: dict[str, object] = {"workers": WORKERS}
    if only in (None, "math"):
        figures["math"] = _math()
    if only in (None, "simple"):
        figures["simple"] = _simple()
    if only in (None, "code"):
        figures["code"] = {str(level): _code(level) for level in (Level.NAMESPACES, Level.LANDLOCK)}
    if only in (None, "numpy"):
        figures["numpy"] = {str(level): _numpy(level) for level in (Level.NAMESPACES, Level.LANDLOCK)}
    if only in (None, "hanging"):
        figures["hanging"] = _hanging()
    print(json.dumps(figures))


def _math() -> dict[str, float]:
    figures = rewards_math.measure(WORKERS)
    print("math, {pairs} pairs: cost p50 {ms_p50:.2f}, p90 {ms_p90:.2f}, p99 {ms_p99:.2f}, mean {ms_mean:.2f} ms".format(**figures))
    print("math: {pool_per_s:.0f}/s with {workers} workers, {in_process_per_s:.0f}/s in one process, ratio {ratio:.2f}".format(**figures))
    return {name: round(value, 3) for name, value in figures.items()}


def at_once(item: RewardInput) -> float:
    """A reward that costs nothing."""
    return 1.0


def _simple() -> dict[str, float]:
    """What a row costs around its verdict: the judge's side, and the workers' with their start taken off."""
    entry = RewardEntry(name="at_once", spec=RewardSpec(name="at_once", target="benchmarks.rewards:at_once", summary=""), deadline=10.0)
    _, _, start = _cpu_of(entry, 1)
    seconds, here, there = _cpu_of(entry, SIMPLE)
    figures = {"rows_per_s": SIMPLE / seconds, "judge_cpu_ms": here / SIMPLE * 1e3, "workers_cpu_ms": (there - start) / SIMPLE * 1e3}
    figures["cpu_ms"] = figures["judge_cpu_ms"] + figures["workers_cpu_ms"]
    print("simple rows: {cpu_ms:.3f} CPU-ms each ({judge_cpu_ms:.3f} here, {workers_cpu_ms:.3f} in workers)".format(**figures))
    return {name: round(value, 4) for name, value in figures.items()}


def _cpu_of(entry: RewardEntry, rows: int) -> tuple[float, float, float]:
    """(seconds, CPU seconds here, CPU seconds of the workers from start to end) of so many rows with one short text each."""
    texts, columns = ["so it is \\boxed{12}"] * rows, [{"gt_answer": "12"}] * rows
    before = _cpu(resource.RUSAGE_CHILDREN)
    with _judge(entry) as judge:
        here = _cpu(resource.RUSAGE_SELF)
        seconds, _ = _judged(judge, texts, columns)
        here = _cpu(resource.RUSAGE_SELF) - here
    return seconds, here, _cpu(resource.RUSAGE_CHILDREN) - before


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _code(level: Level) -> dict[str, float] | str:
    """Jailed runs a second: one program and one test a rollout, every program another."""
    spec = next(spec for spec in rlcore_register_rewards() if spec.name == "code")
    options = CodeOptions(sandbox=SandboxOptions(level=level.value))  # type: ignore[arg-type]
    entry = RewardEntry(name="code", spec=spec, deadline=spec.deadline, options=options)
    texts = [f"```python\nprint(int(input()) + {number})\n```" for number in range(RUNS)]
    columns = [{"test_cases": {"inputs": ["1\n"], "outputs": [f"{number + 1}\n"]}} for number in range(RUNS)]
    try:
        with _judge(entry) as judge:
            _judged(judge, texts[:20], columns[:20])
            seconds, scores = _judged(judge, texts, columns)
    except PluginError as error:
        return str(error)
    assert all(score.accuracy == 1.0 for score in scores)
    print(f"code, level {level}: {RUNS / seconds:.0f} runs/s with {WORKERS} workers")
    return {"runs_per_s": round(RUNS / seconds, 1)}


def _numpy(level: Level) -> dict[str, float] | str:
    figures = rewards_numpy.measure(level)
    if isinstance(figures, str):
        return figures
    print(f"numpy, level {level}, one core: " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()))
    return {name: round(value, 2) for name, value in figures.items()}


def work_or_hang(item: RewardInput) -> float:
    """A reward of COST seconds of CPU; it never returns where the text says so."""
    if item.text == HANGING:
        time.sleep(1e6)
    end = time.process_time() + COST
    while time.process_time() < end:
        pass
    return 1.0


def _hanging() -> dict[str, float]:
    texts = [HANGING if number % EVERY == EVERY // 2 else "work" for number in range(ITEMS)]
    hung = texts.count(HANGING)
    entry = RewardEntry(name="work", spec=RewardSpec(name="work", target="benchmarks.rewards:work_or_hang", summary=""), deadline=DEADLINE)
    with _judge(entry) as judge:
        plain, _ = _judged(judge, ["work"] * 200, [{}] * 200)
        seconds, scores = _judged(judge, texts, [{}] * ITEMS)
    useful = sum(score.value == 1.0 for score in scores)
    assert useful == ITEMS - hung
    cost = plain / 200 * WORKERS  # worker seconds of a useful item, engine included, without hanging ones in the run
    bound = WORKERS / (cost + hung * 2 * DEADLINE / useful)
    figures = {"useful_per_s": useful / seconds, "bound_per_s": bound, "share_of_bound": useful / seconds / bound}
    print(f"hanging: {hung} of {ITEMS} items hang, deadline {DEADLINE:g} s: " + ", ".join(f"{k} {v:.3g}" for k, v in figures.items()))
    return {name: round(value, 3) for name, value in figures.items()}


@contextmanager
def _judge(entry: RewardEntry) -> Iterator[Judge]:
    with Judge([entry], workers=WORKERS, error_budget=1.0) as judge:
        yield judge


def _judged(judge: Judge, texts: Sequence[str], columns: Sequence[dict[str, object]]) -> tuple[float, list[Score]]:
    """(seconds, scores in order)."""
    started = time.perf_counter()
    for key, (text, row) in enumerate(zip(texts, columns, strict=True)):
        prompt = Prompt(prompt_id=str(key), index=key, messages=(Message(role="user", content="?"),), columns=row)
        judge.submit(key, prompt, [_rollout(key, text)])
    scores: dict[int, Score] = {}
    while len(scores) < len(texts):
        scores |= {key: of[0] for key, of in judge.poll(60.0)}
    return time.perf_counter() - started, [scores[key] for key in range(len(texts))]


def _rollout(key: int, text: str) -> Rollout:
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
    return Rollout(prompt_id=str(key), index=0, segments=(segment,), text=text, finish=FinishReason.STOP)


if __name__ == "__main__":
    main()
