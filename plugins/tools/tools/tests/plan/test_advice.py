"""The search: it finds the best split, asks for no more staleness than is needed, and a slice of a cluster speaks for the whole."""

from __future__ import annotations

import pytest
from rlcore_plugin_tools.plan.advice import CLOSE, advise
from rlcore_plugin_tools.plan.bounds import estimated_period
from rlcore_plugin_tools.plan.simulated import Scenario, Workload, simulate
from scenarios import workload

from rlcore.api import ConfigError

BALANCED = workload(
    group={"train_batch_size": 24},
    generation={"slots": 4},
    update={"update_seconds": 0.0, "token_seconds": 0.01},
    weights={"transfer_seconds": 0.1},
)
"""A batch takes P producers 24 / (4 P) x 1 s = 6 / P s at best, and T trainers 24 x 50 x 0.01 / T = 12 / T s: with 6 devices 2 and 4."""


def test_the_split_is_the_one_that_balances_both_roles() -> None:
    advice = advise(BALANCED, 6)
    best = advice.zero_bubble.scenario
    assert (best.producers, best.trainers) == (2, 4)
    assert advice.zero_bubble.figures.updates_per_second == pytest.approx(1 / 3, rel=CLOSE)
    assert advice.speedup > 1.4
    assert advice.flags.startswith("-i 2 -t 4 -g 1 -tbs 24 ")


def test_a_slice_keeps_the_proportions_where_nothing_divides() -> None:
    whole = Scenario(workload=BALANCED, producers=57, trainers=71, train_batch_size=512, buffer_limit=1024, max_staleness=3)
    small, parts = whole.sliced(256)
    assert (small.producers, small.batch, parts) == (28, 252, 2)
    assert small.trainers / small.producers == pytest.approx(whole.trainers / whole.producers)
    assert small.buffer / small.batch == pytest.approx(2, abs=0.01)
    assert small.groups_per_producer == whole.groups_per_producer
    assert whole.sliced(10_000) == (whole, 1)


def test_a_constant_workload_needs_little_staleness() -> None:
    advice = advise(BALANCED, 6)
    assert advice.zero_bubble.scenario.max_staleness <= 2
    assert advice.zero_bubble.scenario.buffer <= 3 * 24
    assert advise(BALANCED, 6, max_staleness=4).zero_bubble.scenario.max_staleness == 4


def test_on_policy_zero_bubble_is_the_synchronous_split() -> None:
    advice = advise(BALANCED, 6, max_staleness=0)
    assert advice.zero_bubble == advice.synchronous
    assert advice.speedup == 1.0


def test_a_given_split_is_kept() -> None:
    advice = advise(BALANCED, 6, split=(3, 3))
    for choice in (advice.zero_bubble, advice.synchronous):
        assert (choice.scenario.producers, choice.scenario.trainers) == (3, 3)


def test_devices_of_a_role_are_counted() -> None:
    wide = workload(generation={"producer_devices": 2, "slots": 16}, update={"trainer_devices": 4})
    scenario = advise(wide, 12, max_staleness=1).zero_bubble.scenario
    assert scenario.devices <= 12
    assert f"-t {round(scenario.trainers) * 4} -tp 4 -ptp 2" in advise(wide, 12, max_staleness=1).flags
    with pytest.raises(ConfigError, match=r"--devices 5: .* take 6 devices"):
        advise(wide, 5)


@pytest.mark.parametrize("per_producer", [2, 5])
def test_no_split_leaves_devices_idle_that_another_trainer_would_use(per_producer: int) -> None:
    wide = workload(generation={"producer_devices": per_producer}, update={"trainer_devices": 3, "token_seconds": 0.01})
    tried = [one.scenario for one in advise(wide, 40, max_staleness=2, updates=3).tried if not one.scenario.colocated]
    assert all(40 - scenario.devices < 3 for scenario in tried)


def test_the_split_balances_producers_of_several_devices() -> None:
    """240 prompts take P producers 60 / P s and T trainers 120 / T s: with 2 devices a producer, 40 devices are 10 and 20."""
    wide = workload(
        group={"train_batch_size": 240},
        generation={"slots": 4, "producer_devices": 2},
        update={"update_seconds": 0.0, "token_seconds": 0.01},
    )
    advice = advise(wide, 40, max_staleness=2)
    best = advice.zero_bubble.scenario
    assert (best.producers, best.trainers) == (10, 20)
    assert advice.zero_bubble.as_json()["devices_used"] == 40


def test_the_same_seed_gives_the_same_advice_and_says_what_it_does() -> None:
    said: list[str] = []
    random = workload(group={"response_sigma": 0.5})
    assert advise(random, 4, updates=5, seed=3, say=said.append) == advise(random, 4, updates=5, seed=3)
    assert any("staleness 4" in line for line in said)


@pytest.mark.full
@pytest.mark.parametrize("max_staleness", [0, 8])
@pytest.mark.parametrize("producers", [24, 48])
def test_a_slice_runs_like_the_whole(producers: int, max_staleness: int) -> None:
    """What the search aggregates, checked where the whole can be simulated: period within 5 %, shares within 5 points."""
    whole = Scenario(
        workload=Workload.model_validate({"group": {"train_batch_size": 192, "num_generations": 8}}),
        producers=producers,
        trainers=32,
        max_staleness=max_staleness,
        updates=15,
        warm_up=4 + 2 * max_staleness,
    )
    small, parts = whole.sliced(256)
    assert parts == producers // 8
    assert small.producers * parts == producers
    assert small.batch * parts == whole.batch
    part, all_of_it = simulate(small), simulate(whole)
    assert part.updates_per_second == pytest.approx(all_of_it.updates_per_second, rel=0.05)
    assert part.trainer_busy == pytest.approx(all_of_it.trainer_busy, abs=0.05)
    assert part.slot_use == pytest.approx(all_of_it.slot_use, abs=0.05)


@pytest.mark.full
@pytest.mark.parametrize("producers", [30, 50, 80])
@pytest.mark.parametrize("max_staleness", [0, 16])
def test_the_estimate_that_ranks_splits_is_near_the_simulation(producers: int, max_staleness: int) -> None:
    scenario = Scenario(
        workload=Workload(),
        producers=producers,
        trainers=128 - producers,
        max_staleness=max_staleness,
        updates=10,
        warm_up=4 + 2 * max_staleness,
    ).sliced(1024)[0]
    assert estimated_period(scenario) == pytest.approx(1 / simulate(scenario).updates_per_second, rel=0.15)
