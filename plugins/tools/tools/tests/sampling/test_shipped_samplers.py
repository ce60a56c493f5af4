"""The shipped samplers under the kit, against draws computed by hand, and in runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.sampling.easy_to_hard import EasyToHard, EasyToHardOptions
from rlcore_plugin_tools.sampling.replay import Replay, ReplayOptions
from rlcore_plugin_tools.sampling.rising_level import RisingLevel, RisingLevelOptions
from rlcore_plugin_tools.sampling.success_rate import SuccessRate, SuccessRateOptions

from rlcore.api import ConfigError, Draw, DrawResult, Sampler, SamplerContext
from rlcore.testing import RunTester, SamplerSuite

ENDLESS = SamplerContext(items=None, levels=3)


class TestSuccessRate(SamplerSuite):
    def make(self, context: SamplerContext) -> Sampler:
        return SuccessRate(context, SuccessRateOptions())


class TestSuccessRateAmongSources(TestSuccessRate):
    def context(self) -> SamplerContext:
        return SamplerContext(items=3, ids=["a", "b", "c"], weights=(1.0, 2.0, 0.5))


class TestEasyToHard(SamplerSuite):
    def make(self, context: SamplerContext) -> Sampler:
        return EasyToHard(context, EasyToHardOptions())


class TestReplay(SamplerSuite):
    def make(self, context: SamplerContext) -> Sampler:
        return Replay(context, ReplayOptions(age=2, below=0.7))


class TestReplayWithoutEnd(TestReplay):
    def context(self) -> SamplerContext:
        return ENDLESS


class TestRisingLevel(SamplerSuite):
    def make(self, context: SamplerContext) -> Sampler:
        return RisingLevel(context, RisingLevelOptions(window=3, rise=0.6))

    def context(self) -> SamplerContext:
        return ENDLESS


def seen(item: int, accuracy: float | None, version: int = 1, level: int = 0) -> DrawResult:
    ended: Any = "failed" if accuracy is None else "trained"
    return DrawResult(item=item, level=level, ended=ended, accuracy=accuracy, reward=accuracy, version=version)


def rewarded(item: int, reward: float | None, ended: Any = "trained") -> DrawResult:
    return DrawResult(item=item, ended=ended, accuracy=None, reward=reward, version=1)


def context(items: int, rows: Sequence[dict[str, Any]] = ()) -> SamplerContext:
    ids = [f"rows:{number + 1}" for number in range(items)]
    return SamplerContext(items=items, ids=ids, weights=(1 / items,) * items, seed=1, rows=lambda: rows)


def test_what_is_solved_half_of_the_time_is_drawn_most() -> None:
    """Of three prompts with accuracies 0, 1/2 and 1, the weights become explore, 1 and explore."""
    sampler, counts = SuccessRate(context(3), SuccessRateOptions(explore=0.1)), Counter[int]()
    first = [sampler.next() for _ in range(3)]
    assert sorted(first) == [0, 1, 2], "each once, before any result"
    for item in first:
        sampler.observe(seen(item, item / 2))
    for _ in range(3000):
        counts[item := sampler.next()] += 1
        sampler.observe(seen(item, item / 2))
    assert counts[1] / 3000 == pytest.approx(1 / 1.2, abs=0.03)
    assert min(counts.values()) > 100


def drawn_in_waves(sampler: SuccessRate, accuracies: Sequence[float], waves: int, size: int) -> Counter[int]:
    """The draws of waves, whose results are seen after each."""
    counts = Counter[int]()
    for _ in range(waves):
        wave = [int(sampler.next()) for _ in range(size)]
        counts.update(wave)
        for item in wave:
            sampler.observe(seen(item, accuracies[item]))
    return counts


def test_the_weights_of_sources_count_while_many_draws_are_under_way() -> None:
    weighed = SamplerContext(items=2, ids=("one", "two"), weights=(0.9, 0.1), seed=1)
    counts = drawn_in_waves(SuccessRate(weighed, SuccessRateOptions()), [0.5, 0.5], 50, 20)
    assert counts[0] / 1000 == pytest.approx(0.9, abs=0.02)


def test_what_can_be_learned_is_drawn_more_often_than_once_if_an_update_has_more_draws_than_items() -> None:
    counts = drawn_in_waves(SuccessRate(context(20), SuccessRateOptions()), [0.5] + [0.0] * 19, 21, 40)
    assert counts[0] > 0.4 * counts.total(), "its share is 1 / (1 + 19 * 0.05)"


def test_a_rate_begins_with_the_first_group_and_moves_by_the_share_of_the_newest() -> None:
    """Rewards count if there are no accuracies, within 0 and 1."""
    sampler = SuccessRate(context(3), SuccessRateOptions(newest=0.25))
    for result in (seen(0, 1.0), seen(0, 0.5), seen(1, None), rewarded(1, -3.0)):
        sampler.observe(result)
    assert sampler.state()["rates"] == [0.875, 0.0, None]


def test_each_episode_is_from_easy_to_hard() -> None:
    rows = [{"difficulty": level} for level in (3, 1, 2, 1)]
    sampler = EasyToHard(context(4, rows), EasyToHardOptions())
    episodes = [[sampler.next() for _ in range(4)] for _ in range(20)]
    assert {tuple(episode) for episode in episodes} == {(1, 3, 2, 0), (3, 1, 2, 0)}


def test_what_was_not_solved_comes_again_after_its_age() -> None:
    sampler, draws = Replay(context(4), ReplayOptions(age=2, below=1.0)), []
    accuracies = {item: float(item % 2) for item in range(4)}
    for version in range(1, 8):
        drawn = [sampler.next() for _ in range(2)]
        draws.append([draw.item for draw in drawn])
        for draw in drawn:
            sampler.observe(seen(draw.item, accuracies[draw.item], version))
    wrong = {version: [item for item in items if item % 2 == 0] for version, items in enumerate(draws, start=1)}
    assert sorted(draws[0] + draws[1]) == [0, 1, 2, 3]
    assert wrong[1][0] in draws[3], "due at version 3, the fourth update draws it"
    assert Counter(item % 2 for items in draws for item in items)[0] > 7


def test_a_level_rises_after_success_and_falls_after_failure() -> None:
    sampler, levels = RisingLevel(ENDLESS, RisingLevelOptions(window=2, rise=0.75, fall=0.25)), []
    for accuracy in (1, 0.5, 1, None, 1, 1, 1, 0, 0, 0.5, 0.5):
        draw = sampler.next()
        levels.append(draw.level)
        sampler.observe(seen(draw.item, accuracy, level=draw.level))
    assert levels == [0, 0, 1, 1, 1, 2, 2, 2, 2, 1, 1]
    assert sampler.next() == Draw(11, 1)
    sampler.observe(seen(3, 1.0, level=0))
    assert sampler.state()["recent"] == [], "a late group of another level does not count"


def test_rewards_within_0_and_1_count_if_there_are_no_accuracies() -> None:
    rising = RisingLevel(ENDLESS, RisingLevelOptions(window=2, rise=0.75))
    for reward in (None, 3.0, 0.5):
        rising.observe(rewarded(rising.next().item, reward))
    assert rising.next().level == 1, "the mean of 1 and 0.5"
    replay = Replay(context(4), ReplayOptions(age=2, below=0.5))
    for result in (rewarded(0, 0.6), rewarded(1, 0.4), rewarded(2, None, "failed"), rewarded(3, 0.0, "failed")):
        replay.observe(result)
    assert replay.state()["waiting"] == [[3, 1, 0]]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SuccessRate(ENDLESS, SuccessRateOptions()), "the data has no end; type --sampler rising_level"),
        (lambda: EasyToHard(ENDLESS, EasyToHardOptions()), "data without end and sources have none"),
        (lambda: EasyToHard(context(2, [{"difficulty": 1}, {}]), EasyToHardOptions()), "that of rows:2 is None"),
        (lambda: RisingLevel(context(2), RisingLevelOptions()), "needs data without end that has several levels"),
    ],
)
def test_what_a_sampler_cannot_draw_from_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


@pytest.mark.parametrize("words", [("success_rate", "--target", "0.3"), ("replay", "--age", "1"), ("easy_to_hard",)])
def test_runs_draw_with_them_and_resume(tester: RunTester, words: Sequence[str]) -> None:
    rows = [{"messages": {"role": "user", "content": text}, "gt_answer": text, "difficulty": n} for n, text in enumerate("abcdefg")]
    data = tester.write("graded.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    config = tester.fake_run(
        run={"num_episodes": 9, "max_steps": 6}, data={"dataset": str(data)}, log={"save_interval": 1, "keep_checkpoints": 9}
    )
    done = tester.run("train", config, "--sampler", *words, "--json").assert_ok()
    folder = tester.folder / done.json["run"]
    whole = figures(folder)
    tester.run("resume", str(folder), "--step", "3", "--max-steps", "6").assert_ok()
    assert figures(folder) == whole


def figures(folder: Path) -> list[tuple[Any, ...]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [tuple(row.get(name) for name in ("step", "reward/mean", "loss")) for row in rows]
