"""The line of prompts: it forgets no place, asks the samplers in order, and shows them every end once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.contracts.errors import ConfigError, RunError
from rlcore.contracts.sampler import Draw, DrawResult, Sampler, SamplerContext
from rlcore.schedule import ChosenSampler, Coordinator, ScheduleSettings, SourceSchedule
from rlcore.schedule.ordinals import Ordinals
from rlcore.schedule.prompt_line import PromptLine, PromptPlace
from rlcore.schedule.prompt_order import Weighted


def settings_of(*prompts: int | None, episodes: int = 2, weights: tuple[float, ...] = (), **more: Any) -> ScheduleSettings:
    weights = weights or (1.0,) * len(prompts)
    sources = tuple(
        SourceSchedule(name=f"s{n}" if len(prompts) > 1 else "", prompts=count, n_sampled=1, weight=weight)
        for n, (count, weight) in enumerate(zip(prompts, weights, strict=True))
    )
    return ScheduleSettings(sources=sources, episodes=episodes, train_batch_size=1, buffer_limit=1, **more)


def line(prompts: int = 3, episodes: int = 2) -> PromptLine:
    return PromptLine(settings_of(prompts, episodes=episodes, shuffle=False))


def chosen(sampler: Sampler, items: int | None, levels: int = 1) -> ChosenSampler:
    return ChosenSampler(sampler, type(sampler).__name__.lower(), f"sampler {type(sampler).__name__} of acme", items, levels)


class Scripted(Sampler):
    """Draws what its list says, and keeps what it saw."""

    def __init__(self, draws: list[Any]) -> None:
        self.draws, self.seen = draws, list[DrawResult]()

    def next(self) -> Draw | int:
        return self.draws.pop(0)

    def observe(self, result: DrawResult) -> None:
        self.seen.append(result)

    def state(self) -> Mapping[str, Any]:
        return {"draws": self.draws}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.draws = list(state["draws"])


def test_a_line_hands_out_each_place_of_each_episode_once() -> None:
    prompts = line()
    places = [prompts.take() for _ in range(6)]
    assert places == [PromptPlace(3 * e + p, 0, e, p) for e in range(2) for p in range(3)]
    assert prompts.exhausted
    with pytest.raises(ValueError, match="handed out"):
        prompts.take()


def test_places_put_back_go_first_in_the_order_of_the_draws() -> None:
    prompts = line()
    first, second, third, fourth = (prompts.take() for _ in range(4))
    for place in (fourth, second):
        prompts.put_back(place)
    assert (prompts.returned, prompts.sources[0].ledger.reissued) == (2, 2)
    assert [prompts.take() for _ in range(3)] == [second, fourth, PromptPlace(4, 0, 1, 1)]
    assert first < third


def test_a_prompt_drawn_again_has_an_ordinal_until_the_episode_ends() -> None:
    prompts = PromptLine(settings_of(3), [chosen(Scripted([1, 1, 0, 1, 1, 2]), 3)])
    assert [(p.episode, p.prompt, p.ordinal) for p in (prompts.take() for _ in range(6))] == [
        *[(0, 1, 0), (0, 1, 1), (0, 0, 0)],
        *[(1, 1, 0), (1, 1, 1), (1, 2, 0)],
    ]
    assert prompts.exhausted


def test_endless_prompts_have_one_episode_and_levels() -> None:
    draws = [Draw(0), Draw(1, 2), Draw(1, 2), Draw(2, 1)]
    prompts = PromptLine(settings_of(None, max_steps=9), [chosen(Scripted(list(draws)), None, levels=3)])
    assert [prompts.take() for _ in range(4)] == [PromptPlace(n, 0, 0, *d[:1], n == 2, d[1]) for n, d in enumerate(draws)]
    assert not prompts.exhausted


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=40), st.integers(0, 40))
def test_ordinals_count_the_issues_before(prompts: list[int], cut: int) -> None:
    ordinals, seen = Ordinals(), Counter[int]()
    for place, prompt in enumerate(prompts):
        if place == cut:
            ordinals = Ordinals(json.loads(json.dumps(ordinals.state())))
        assert ordinals.issue(prompt) == seen[prompt]
        seen[prompt] += 1


def test_ordinals_of_prompts_in_order_stay_small() -> None:
    ordinals = Ordinals()
    assert {ordinals.issue(prompt) for prompt in range(1000)} == {0}
    assert ordinals.state() == [1000, []]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.integers(1, 9).map(float), st.floats(0.001, 1.0)), min_size=1, max_size=7), st.integers(1, 150))
def test_weighted_draws_keep_every_share_within_one_draw(weights: list[float], draws: int) -> None:
    sampler, counts = Weighted(SamplerContext(items=len(weights), weights=weights)), [0] * len(weights)
    for number in range(1, draws + 1):
        if number == draws // 2:
            again = Weighted(SamplerContext(items=len(weights), weights=weights))
            again.restore(json.loads(json.dumps(sampler.state())))
            sampler = again
        counts[sampler.next()] += 1
        for weight, count in zip(weights, counts, strict=True):
            assert abs(count - number * weight / sum(weights)) < 1 + 1e-9


def test_sources_are_drawn_by_weight_and_end_their_own_episodes() -> None:
    prompts = PromptLine(settings_of(2, 4, weights=(1, 2), episodes=2, shuffle=False))
    places = [prompts.take() for _ in range(12)]
    assert Counter(place.source for place in places) == {0: 4, 1: 8}
    assert [(p.episode, p.prompt) for p in places if p.source == 0] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [place.number for place in places] == list(range(12))
    assert prompts.exhausted
    assert [line.ledger.episodes[1].issued for line in prompts.sources] == [2, 4]


def test_samplers_see_every_end_once_at_the_update_in_the_order_of_the_draws() -> None:
    inner, among = Scripted([2, 0, 1, 2]), Scripted([0, 0, 0, 0])
    prompts = PromptLine(settings_of(3, 5, episodes=1), [chosen(inner, 3), chosen(Scripted([]), 5)], chosen(among, 2))
    places = [prompts.take() for _ in range(4)]
    prompts.end(places[2], "failed", "timeout", None, None)
    prompts.end(places[0], "trained", "", 0.5, 0.25)
    assert inner.seen == []
    prompts.updated(7)
    assert inner.seen == [
        DrawResult(item=2, ended="trained", accuracy=0.5, reward=0.25, version=7),
        DrawResult(item=1, ended="failed", accuracy=None, reward=None, version=7),
    ]
    assert [result.item for result in among.seen] == [0, 0]
    prompts.end(places[1], "filtered", "", 1.0, 1.0)
    prompts.updated(8)
    assert [(result.item, result.version) for result in inner.seen[2:]] == [(0, 8)]


def test_a_state_has_what_no_sampler_has_seen() -> None:
    def made() -> tuple[PromptLine, Scripted]:
        sampler = Scripted([1, 1, 2, 0])
        return PromptLine(settings_of(3), [chosen(sampler, 3)]), sampler

    prompts, _ = made()
    first, second = prompts.take(), prompts.take()
    prompts.end(first, "trained", "", 1.0, 1.0)
    state = json.loads(json.dumps(prompts.state([second])))
    again, sampler = made()
    again.restore(state)
    assert again.state([]) == state
    assert [again.take() for _ in range(2)] == [second, prompts.take()]
    again.updated(1)
    assert [result.item for result in sampler.seen] == [1]


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (3, "it drew item 3, and the items are 0 to 2"),
        (-1, "it drew item -1"),
        (Draw(0, 1), "it drew level 1, and the levels are 0 to 0"),
        ("a", "TypeError"),
    ],
)
def test_a_draw_that_cannot_be_is_told_with_the_sampler_s_name(draw: Any, said: str) -> None:
    prompts = PromptLine(settings_of(3), [chosen(Scripted([draw]), 3)])
    with pytest.raises(RunError, match=f"sampler Scripted of acme failed while drawing: .*{said}"):
        prompts.take()
    with pytest.raises(RunError, match="sampler Scripted of acme failed while drawing: IndexError"):
        prompts.take()


def test_changed_sources_and_samplers_are_refused() -> None:
    begun = PromptLine(settings_of(3, 5))
    state, first = begun.state([]), begun.sources[0].sampler
    sources = (
        "^the list of sources was s0 with 3 prompts, s1 with 5 prompts when this run began and is s0 with 3 prompts, s1 with 6 prompts"
    )
    with pytest.raises(ConfigError, match=sources):
        PromptLine(settings_of(3, 6)).restore(state)
    with pytest.raises(ConfigError, match=r"^the sampler of source s1 was shuffled when this run began and is scripted now"):
        PromptLine(settings_of(3, 5), [first, chosen(Scripted([]), 5)]).restore(state)
    with pytest.raises(ConfigError, match=r"^the sampler of the sources was weighted when this run began and is scripted now"):
        PromptLine(settings_of(3, 5), among=chosen(Scripted([]), 2)).restore(state)
    with pytest.raises(ConfigError, match=r"^the weight of source s1 was 1.0 when this run began and is 3 now"):
        PromptLine(settings_of(3, 5, weights=(1, 3))).restore(state)


def test_the_state_of_prompts_without_end_has_format_3_and_goes_on() -> None:
    """Format 2 counts episodes, which such a source does not have."""
    endless = ScheduleSettings(train_batch_size=2, buffer_limit=4, max_steps=4)
    coordinator = Coordinator(endless)
    leased = coordinator.lease("a", 2)
    state = json.loads(json.dumps(coordinator.state()))
    assert (state["format"], [lease.prompt_index for lease in leased]) == (3, [0, 1])
    again = Coordinator.restored(endless, state)
    assert [lease.prompt_index for lease in again.lease("b", 2)] == [0, 1]
