"""pass@k and maj@k against every choice of k, and against what others have computed; the interval against coverage and known values."""

from __future__ import annotations

import random
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.learning import majority_at_k, mean_interval, pass_at_k, usual_ks

ANSWERS = st.lists(st.tuples(st.sampled_from(["7", "8", "9", None]), st.booleans()), min_size=1, max_size=8)


def votes(chosen: tuple[tuple[str | None, float], ...], accuracy: dict[str, float]) -> float:
    """The accuracy of a majority vote, ties shared, by counting one choice."""
    counts: dict[str, int] = {}
    for answer, _ in chosen:
        if answer is not None:
            counts[answer] = counts.get(answer, 0) + 1
    if not counts:
        return 0.0
    winners = [answer for answer, count in counts.items() if count == max(counts.values())]
    return fmean(accuracy[answer] for answer in winners)


@given(ANSWERS, st.data())
def test_both_are_the_mean_over_every_choice(made: list[tuple[str | None, bool]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(made)))
    pairs = [(answer, float(right)) for answer, right in made]
    choices = list(combinations(pairs, k))
    accuracy = {name: fmean(right for answer, right in pairs if answer == name) for name, _ in pairs if name is not None}
    passed = fmean(float(any(right for _, right in choice)) for choice in choices)
    assert pass_at_k(len(pairs), sum(right for _, right in pairs), k) == pytest.approx(passed, abs=1e-12)
    voted = fmean(votes(choice, accuracy) for choice in choices)
    assert majority_at_k([answer for answer, _ in pairs], [right for _, right in pairs], k) == pytest.approx(voted, abs=1e-12)


def test_known_values_of_pass_at_k() -> None:
    assert pass_at_k(10, 1, 1) == pytest.approx(0.1)
    assert pass_at_k(10, 3, 5) == pytest.approx(1 - 21 / 252)  # C(7, 5) / C(10, 5)
    assert pass_at_k(4, 4, 4) == 1.0
    assert pass_at_k(200, 0, 100) == 0.0
    assert pass_at_k(5, 2.5, 1) == pytest.approx(0.5)


@given(st.integers(1, 64), st.data())
def test_more_tries_never_pass_less(n: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, n))
    figures = [pass_at_k(n, correct, k) for k in range(1, n + 1)]
    assert figures == sorted(figures)
    assert figures[0] == pytest.approx(correct / n)


def test_who_has_no_answer_does_not_vote() -> None:
    assert majority_at_k([None, None, None, "7"], [0.0, 0.0, 0.0, 1.0], 4) == 1.0
    assert majority_at_k([None, None], [0.0, 0.0], 2) == 0.0


def test_a_large_vote_is_counted_and_not_enumerated() -> None:
    answers = [str(number % 9) for number in range(64)]
    assert 0.0 < majority_at_k(answers, [float(answer == "0") for answer in answers], 32) < 1.0


@pytest.mark.parametrize(("n", "ks"), [(1, ()), (2, (2,)), (3, (2, 3)), (8, (2, 4, 8)), (12, (2, 4, 8, 12))])
def test_the_ks_that_are_reported(n: int, ks: tuple[int, ...]) -> None:
    assert usual_ks(n) == ks


@pytest.mark.parametrize(("n", "k"), [(3, 0), (3, 4)])
def test_a_k_that_cannot_be_drawn_is_refused(n: int, k: int) -> None:
    with pytest.raises(ValueError, match="k is"):
        pass_at_k(n, 1, k)
    with pytest.raises(ValueError, match="k is"):
        majority_at_k(["7"] * n, [1.0] * n, k)


def test_the_interval_of_one_answer_a_prompt_is_wilsons() -> None:
    """Golden: 81 of 263 (Newcombe 1998, table I, method 3): 0.2553 to 0.3662; 0 of 20: 0 to 0.1611."""
    found = mean_interval([1.0] * 81 + [0.0] * 182)
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    none = mean_interval([0.0] * 20)
    assert (none.mean, none.low, round(none.high, 4)) == (0.0, 0.0, 0.1611)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 16))
def test_an_interval_holds_its_mean_within_0_and_1(values: list[float], completions: int) -> None:
    found = mean_interval(values, completions)
    assert 0.0 <= found.low <= found.mean <= found.high <= 1.0
    assert found.high > found.low


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_more_prompts_of_the_same_kind_narrow_it(values: list[float]) -> None:
    once, again = mean_interval(values), mean_interval(values * 4)
    assert again.high - again.low < once.high - once.low


def test_it_covers_what_it_says() -> None:
    """Prompts that differ in difficulty, four completions each: 95 % of the intervals hold the truth, give or take."""
    draw = random.Random(7)
    held = 0
    for _ in range(2000):
        means = [fmean(draw.random() < chance for _ in range(4)) for chance in (draw.betavariate(1, 2) for _ in range(60))]
        found = mean_interval(means, 4)
        held += found.low <= 1 / 3 <= found.high
    assert 0.93 <= held / 2000 <= 0.97


@pytest.mark.parametrize("values", [[], [1.5], [-0.1]])
def test_what_is_no_share_has_no_interval(values: list[float]) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        mean_interval(values)
