"""Each rule on a series that shows its sign and on ones that do not, and the laws that hold for every series."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_tools.health import rlcore_note_step, rlcore_run_started
from rlcore_plugin_tools.health.rules import RULES
from rlcore_plugin_tools.health.watch import HealthMonitor

from rlcore.api import RunInfo
from rlcore.api.settings import core_settings

CONFIG: Mapping[str, Any] = {
    "schedule": {"max_staleness": 1},
    "sampling": {"max_new_tokens": 512},
    "algorithm": {"kl_coeff": 0.01},
}
HEALTHY: Mapping[str, float] = {
    "reward/mean": 0.5,
    "reward/std": 0.5,
    "reward/accuracy": 0.5,
    "groups/zero_spread": 0.3,
    "entropy/sampled": 0.8,
    "ratio_mean": 1.0,
    "ratio_outside": 0.02,
    "staleness/max": 0.0,
    "optimizer_steps": 1.0,
    "skipped_steps": 0.0,
    "time/trainer/compute": 8.0,
    "time/trainer/waiting_for_data": 1.0,
    "time/producers/compute": 8.0,
    "time/producers/back_pressure": 2.0,
    "time/producers/blocked_by_rewards": 0.0,
    "truncated": 0.1,
    "response_length/mean": 200.0,
    "kl_reference": 0.02,
    "effective_sample_size": 0.9,
}
ILL: Mapping[str, Mapping[str, float]] = {
    "reward-zero": {"reward/mean": 0.0, "reward/std": 0.0, "groups/zero_spread": 1.0},
    "no-spread": {"groups/zero_spread": 1.0},
    "entropy-collapse": {"entropy/sampled": 0.05},
    "ratio-mean": {"ratio_mean": 1.2},
    "ratio-outside": {"ratio_outside": 0.3},
    "starved-trainer": {"time/trainer/waiting_for_data": 20.0},
    "starved-producers": {"time/producers/back_pressure": 40.0},
    "cut-off": {"truncated": 0.97},
    "length-explodes": {"response_length/mean": 450.0},
    "length-collapses": {"response_length/mean": 20.0},
    "kl-explodes": {"kl_reference": 2.0},
    "few-samples-count": {"effective_sample_size": 0.1},
    "steps-skipped": {"skipped_steps": 1.0},
}
WORDS = {
    "reward-zero": "the reward was 0",
    "no-spread": "the same reward",
    "entropy-collapse": "entropy",
    "ratio-mean": "mean probability ratio",
    "ratio-outside": "of the tokens of fresh data",
    "starved-trainer": "the trainer waited",
    "starved-producers": "producers waited",
    "cut-off": "of the answers of the last 5 updates were cut off at -mnt 512",
    "length-explodes": "answers grew from",
    "length-collapses": "answers shrank to",
    "kl-explodes": "raise -kl, which is 0.01",
    "few-samples-count": "effective sample size",
    "steps-skipped": "optimizer steps were skipped",
}
"""What begins or marks the sentence of a rule, and of no other."""
NOISY = st.sampled_from([*HEALTHY, *(name for figures in ILL.values() for name in figures)])


def told(updates: Sequence[Mapping[str, float]], config: Mapping[str, Any] = CONFIG) -> list[tuple[int, str]]:
    """Updates, counted from 1, and what was said after them."""
    watch = HealthMonitor(config)
    return [(step, sentence) for step, metrics in enumerate(updates, 1) for sentence in watch.step(metrics)]


def named(sentence: str) -> str:
    (rule,) = [name for name, words in WORDS.items() if words in sentence]
    return rule


def ill(rule: str, **changed: float) -> dict[str, float]:
    return {**HEALTHY, **ILL[rule], **changed}


def test_the_advice_on_several_optimizer_steps_names_the_settings_that_make_them() -> None:
    found = told([*[HEALTHY] * 20, *[ill("ratio-outside", optimizer_steps=4.0)] * 20])
    assert "fewer optimizer steps per batch (--updates-per-batch, --epochs-per-batch)" in found[0][1]


def test_every_rule_has_a_series_here_and_a_name_of_its_own() -> None:
    assert [rule.name for rule in RULES] == list(ILL) == list(WORDS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_its_sentence_once_the_sign_fills_its_window(rule: Any) -> None:
    found = told([*[HEALTHY] * 20, *[ill(rule.name)] * 40])
    assert [named(sentence) for _, sentence in found] == [rule.name]
    at = found[0][0]
    assert 21 < at <= 20 + rule.window + 1
    assert re.search(r"(^|[ (])-{1,2}[a-z]|rollouts/|sampler_gap", found[0][1]), "it must say what to try"
    assert "\n" not in found[0][1]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_it_is_said_again_only_after_it_went_away_and_came_back(rule: Any) -> None:
    away, short = [HEALTHY] * 3 * rule.window, [HEALTHY] * (rule.window // 2)
    bad = [ill(rule.name)] * (rule.window + 1)
    again = told([*[HEALTHY] * 20, *bad, *away, *bad])
    assert [named(sentence) for _, sentence in again].count(rule.name) == 2
    hardly = told([*[HEALTHY] * 20, *bad, *short, *bad])
    assert [named(sentence) for _, sentence in hardly].count(rule.name) == 1


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.window > 5], ids=lambda rule: rule.name)
def test_one_bad_update_is_noise(rule: Any) -> None:
    assert told([*[HEALTHY] * 25, ill(rule.name), *[HEALTHY] * 30]) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_silent_without_what_it_reads_first(rule: Any) -> None:
    without = {name: value for name, value in ill(rule.name).items() if name != rule.reads[0]}
    assert rule.name not in [named(sentence) for _, sentence in told([HEALTHY] * 20 + [without] * 40)]


@pytest.mark.parametrize(
    ("figures", "config"),
    [
        (ill("entropy-collapse", **{"reward/accuracy": 0.95}), CONFIG),  # it has learnt its task, and is sure
        (ill("ratio-outside", **{"staleness/max": 1.0}), CONFIG),
        (ill("starved-trainer"), {**CONFIG, "schedule": {"max_staleness": 0}}),  # they work in turns
        (ill("starved-producers"), {**CONFIG, "schedule": {"max_staleness": 0}}),
        (ill("length-collapses", **{"reward/mean": 0.9}), CONFIG),  # brevity pays
        (ill("length-explodes", **{"reward/mean": 0.9}), CONFIG),
        ({**HEALTHY, "reward/mean": 0.0}, CONFIG),  # rewards of both signs
    ],
)
def test_what_has_a_good_reason_is_not_told_of(figures: Mapping[str, float], config: Mapping[str, Any]) -> None:
    assert told([*[HEALTHY] * 20, *[figures] * 10], config) == []


def test_what_follows_from_another_sign_is_not_told_beside_it() -> None:
    """A reward of 0 has no spread; once it is another constant, that is news."""
    constant = {**ill("reward-zero"), "reward/mean": -1.0}
    found = told([*[ill("reward-zero")] * 20, *[constant] * 30])
    assert [named(sentence) for _, sentence in found] == ["reward-zero", "no-spread"]


def test_a_slow_reward_is_named_where_the_trainer_starves_of_it() -> None:
    ((_, sentence),) = told([ill("starved-trainer", **{"time/producers/blocked_by_rewards": 90.0})] * 25)
    assert "--reward-workers" in sentence
    ((_, sentence),) = told([ill("starved-trainer", **{"time/producers/blocked_by_environments": 90.0})] * 25)
    assert "--partial-rollouts" in sentence


FIGURES = st.dictionaries(NOISY, st.floats(allow_nan=True, allow_infinity=True))


@settings(deadline=None, max_examples=60)
@given(st.lists(FIGURES, min_size=1, max_size=60))
def test_no_figure_whatever_makes_it_raise(updates: list[dict[str, float]]) -> None:
    for _, sentence in told(updates):
        named(sentence)
    assert told(updates, {}) is not None


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(*[st.floats(0.8, 1.2) for _ in HEALTHY]), min_size=1, max_size=80))
def test_a_steady_healthy_run_hears_nothing(noise: list[tuple[float, ...]]) -> None:
    """Each figure moves by a fifth up and down; a ratio's mean only by 4 %."""
    updates = [
        {name: value * (1 + (by - 1) / 5 if name == "ratio_mean" else by) for (name, value), by in zip(HEALTHY.items(), row, strict=True)}
        for row in noise
    ]
    assert told(updates) == []


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(RULES), st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_it_is_told_at_most_once_for_each_time_it_comes_back(rule: Any, spells: list[int]) -> None:
    """Spells of illness and health in turns: no more sentences than spells of illness."""
    updates = [HEALTHY] * 20
    for number, length in enumerate(spells):
        updates += [ill(rule.name) if number % 2 == 0 else HEALTHY] * length
    said = [named(sentence) for _, sentence in told(updates)]
    assert said.count(rule.name) <= len(spells[::2])


def test_answers_that_get_back_their_length_do_not_explode() -> None:
    said = told([*[HEALTHY] * 20, *[ill("length-collapses")] * 20, *[HEALTHY] * 30])
    assert [named(sentence) for _, sentence in said] == ["length-collapses"]


def test_nan_counts_as_absent() -> None:
    assert told([{**HEALTHY, "truncated": math.nan}] * 3 + [{**HEALTHY, "truncated": 1.0}] * 4) == []


def test_a_second_run_in_the_same_process_begins_afresh(tmp_path: Path) -> None:
    for _ in range(2):
        rlcore_run_started(RunInfo(folder=tmp_path, config=CONFIG))
        said = [sentence for step in range(1, 8) for sentence in rlcore_note_step(step, ill("cut-off"))]
        assert list(map(named, said)) == ["cut-off"]


def test_flags_that_are_advised_exist() -> None:
    flags = {flag for setting in core_settings().values() for flag in setting.flags}
    source = (Path(__file__).parents[2] / "rlcore_plugin_tools" / "health" / "rules.py").read_text(encoding="utf-8")
    advised = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", source.partition("RULES: tuple")[0]))
    assert {"-mnt", "-lr", "--max-staleness"} <= advised
    assert advised <= flags


def test_the_page_holds_the_table_of_the_rules() -> None:
    page = (Path(__file__).parents[5] / "docs" / "how_to" / "health.md").read_text(encoding="utf-8")
    assert table() in page, f"paste into docs/how_to/health.md:\n{table()}"


def table() -> str:
    lines = ["| name | reads | updates | threshold | why this threshold |", "|---|---|---:|---|---|"]
    lines += [
        f"| `{rule.name}` | {', '.join(f'`{name}`' for name in rule.reads)} | {rule.window} | {rule.bound:g}: {rule.sign} | {rule.reason} |"
        for rule in RULES
    ]
    return "\n".join(lines) + "\n"
