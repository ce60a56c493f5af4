"""Laws of every schedule, over random clusters: the bound on staleness, the ledger, the clock, and what no schedule can beat."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from rlcore_plugin_tools.plan.simulated import Scenario, Simulation, simulate
from scenarios import scenarios

ROUNDING = 1 + 1e-9
MOST_EVENTS = 200_000


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_time_never_runs_backwards_and_nothing_is_older_than_allowed(scenario: Scenario) -> None:
    simulation, last = Simulation(scenario), 0.0
    for _ in range(MOST_EVENTS):
        if simulation.done:
            break
        simulation.step()
        status = simulation.coordinator.status()
        assert simulation.now >= last
        assert status.in_flight + status.buffered <= scenario.buffer
        last = simulation.now
    assert simulation.done
    assert simulation.figures().staleness_max <= scenario.max_staleness


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_every_prompt_is_accounted_for_once(scenario: Scenario) -> None:
    simulation = Simulation(scenario)
    while not simulation.done:
        simulation.step()
        ledger, status = simulation.coordinator.ledgers[0], simulation.coordinator.status()
        issued = sum(tally.issued for tally in ledger.episodes.values())
        ended = ledger.trained + ledger.filtered + ledger.failed
        assert issued == ended + status.in_flight + status.buffered + status.taken + status.given_back
    assert simulation.coordinator.ledgers[0].trained == scenario.updates * scenario.batch
    assert simulation.figures().groups_per_second == pytest.approx(scenario.updates * scenario.batch / simulation.now)


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_no_schedule_beats_its_limits(scenario: Scenario) -> None:
    figures = simulate(scenario)
    assert figures.decoded_per_second <= _decoding_limit(scenario) * ROUNDING
    assert figures.tokens_per_second <= figures.decoded_per_second * ROUNDING
    for share in (figures.trainer_busy, figures.producers_busy, figures.producers_down, figures.slot_use, figures.lost):
        assert -1e-9 <= share <= ROUNDING
    assert sum(figures.staleness.values()) == pytest.approx(1)
    assert figures.bubble == pytest.approx(1 - figures.trainer_busy)


@settings(max_examples=40, deadline=None)
@given(scenarios(faults=False))
def test_without_failures_nothing_is_lost_or_issued_again(scenario: Scenario) -> None:
    simulation = Simulation(scenario)
    figures = simulation.run()
    assert figures.lost == 0
    assert figures.failures == 0
    assert simulation.coordinator.ledgers[0].reissued == 0


@settings(max_examples=40, deadline=None)
@given(scenarios(faults=False, plain_engine=True))
def test_running_ahead_is_not_slower(scenario: Scenario) -> None:
    longer = replace(scenario, updates=30, warm_up=10, buffer_limit=None, in_flight=None)
    synchronous = simulate(replace(longer, max_staleness=0)).updates_per_second
    overlapped = simulate(replace(longer, max_staleness=2)).updates_per_second
    assert overlapped >= synchronous * (1 - _noise(scenario))


@settings(max_examples=40, deadline=None)
@given(scenarios(faults=False, plain_engine=True))
def test_more_producers_do_not_hurt(scenario: Scenario) -> None:
    """But for the weights, which have to be sent to all of them."""
    weights = scenario.workload.weights.model_copy(update={"weights_gb": 0.0})
    light = scenario.workload.model_copy(update={"weights": weights})
    longer = replace(scenario, workload=light, updates=30, warm_up=10, buffer_limit=None, in_flight=None)
    few = simulate(longer).updates_per_second
    many = simulate(replace(longer, producers=2 * scenario.producers)).updates_per_second
    assert many >= few * (1 - _noise(scenario))


def _decoding_limit(scenario: Scenario) -> float:
    """Tokens a second that the producers decode with every slot busy."""
    generation = scenario.workload.generation
    return scenario.producers * generation.slots / generation.step(generation.slots)


def _noise(scenario: Scenario) -> float:
    """Other schedules draw other lengths: the error of a mean over 30 small batches."""
    group = scenario.workload.group
    random = group.response_sigma or scenario.workload.rewards.reward_seconds
    return 0.25 if random else 0.02
