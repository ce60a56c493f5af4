"""Constant lengths have closed forms: periods, shares and staleness are known without a simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rlcore_plugin_tools.plan.simulated import Scenario, Simulation, simulate
from scenarios import workload

from rlcore.api import ConfigError, RunError


def test_synchronous_updates_take_the_sum_of_everything() -> None:
    parts = workload(
        group={"prompt_tokens": 100.0},
        generation={"prefill_tokens_per_second": 8000.0, "request_seconds": 0.001},
        weights={"transfer_seconds": 0.75},
        rewards={"reward_seconds": 0.3, "reward_workers": 8},
        overheads={
            "lease_seconds": 0.01,
            "deliver_seconds": 0.02,
            "handover_seconds": 0.03,
            "publish_seconds": 0.04,
            "swap_seconds": 0.005,
        },
    )
    prefill, decode = 8 * 100 / 8000, 50 * (0.02 + 8 * 0.001)
    period = 0.01 + prefill + decode + 0.3 + 0.02 + 0.03 + 1.0 + 0.04 + 0.75  # weights are taken while the leases are on their way
    figures = simulate(Scenario(workload=parts, producers=2, trainers=1))
    assert 1 / figures.updates_per_second == pytest.approx(period)
    assert figures.trainer_busy == pytest.approx(1.0 / period)
    assert figures.producers_busy == pytest.approx((prefill + decode) / period)
    assert figures.staleness == {0: 1.0}


@pytest.mark.parametrize(("update", "period"), [(0.4, 1.0), (1.0, 1.0), (1.7, 1.7)], ids=["generation", "equal", "training"])
@pytest.mark.parametrize("transfer", [0.0, 0.3])
def test_overlapped_updates_take_the_longer_of_both(update: float, period: float, transfer: float) -> None:
    scenario = Scenario(
        workload=workload(update={"update_seconds": update}, weights={"transfer_seconds": transfer}),
        producers=2,
        trainers=1,
        max_staleness=4,
        warm_up=10,
    )
    figures = simulate(scenario)
    assert 1 / figures.updates_per_second == pytest.approx(period)
    assert figures.trainer_busy == pytest.approx(update / period)


def test_one_version_of_staleness_hides_the_update_and_every_other_transfer() -> None:
    """By hand: a batch starts with the old weights still served, so its successors wait 0.25 s for new ones, and are done 1.25 s after
    the start. By then the next weights are there, nobody waits, and it takes 1 s. And so on."""
    scenario = Scenario(workload=workload(weights={"transfer_seconds": 0.25}), producers=2, trainers=1, max_staleness=1)
    assert 1 / simulate(scenario).updates_per_second == pytest.approx((1.25 + 1.0) / 2)


def test_colocated_roles_share_devices_and_pay_for_the_switch() -> None:
    colocated = workload(overheads={"switch_seconds": 0.5})
    figures = simulate(Scenario(workload=colocated, producers=2, trainers=2, colocated=True))
    assert 1 / figures.updates_per_second == pytest.approx(1.0 + 1.0 + 2 * 0.5)
    assert figures.devices_idle == pytest.approx(1 / 3)


def test_trainers_share_the_tokens_but_no_response_is_split() -> None:
    per_token = workload(update={"update_seconds": 0.5, "token_seconds": 0.01})
    four = Scenario(workload=per_token, producers=2, trainers=4)
    assert four.update_seconds(16 * 50) == pytest.approx(0.5 + 0.01 * 16 * 50 / 4)
    assert replace(four, trainers=64).update_seconds(16 * 50) == pytest.approx(0.5 + 0.01 * 50)


def test_a_batch_synchronous_producer_waits_for_its_longest() -> None:
    """One producer, eight slots, 16 responses: two batches one after the other, each as long as its longest response."""
    spread = workload(group={"response_sigma": 1.0}, generation={"batching": "batch"})
    scenario = Scenario(workload=spread, producers=1, trainers=1, in_flight=16, updates=1, warm_up=0)
    simulation = Simulation(scenario)
    lengths = [work.lengths[0] for work in simulation._producers[0].held.values()]
    simulation.run()
    assert simulation.now == pytest.approx(0.02 * (max(lengths[:8]) + max(lengths[8:])) + 1.0)
    continuous = replace(scenario, workload=workload(group={"response_sigma": 1.0}))
    assert simulate(continuous).seconds < simulation.now


def test_weights_between_batches_keep_a_producer_waiting() -> None:
    """Two slots and responses of unlike lengths: live, a slot is never empty; else it is, whenever new weights wait for the other."""
    few = workload(group={"response_sigma": 0.5, "train_batch_size": 4}, update={"update_seconds": 0.1}, generation={"slots": 4})
    live = Scenario(workload=few, producers=1, trainers=1, max_staleness=3, updates=40)
    between = replace(live, workload=few.model_copy(update={"weights": few.weights.model_copy(update={"weights_taken": "between"})}))
    assert simulate(between).slot_use < simulate(live).slot_use - 0.1


def test_filtered_groups_are_generated_and_not_trained() -> None:
    figures = simulate(Scenario(workload=workload(group={"filtered": 0.5}), producers=2, trainers=1, max_staleness=2, updates=200))
    assert figures.decoded_per_second / figures.tokens_per_second == pytest.approx(2.0, rel=0.1)
    assert 1 / figures.updates_per_second == pytest.approx(2.0, rel=0.1)  # twice the generation, and that is the slower role


def test_failures_cost_what_they_destroy() -> None:
    mortal = workload(faults={"device_hours": 20 / 3600, "restart_seconds": 5.0})
    simulation = Simulation(Scenario(workload=mortal, producers=4, trainers=1, max_staleness=2, updates=300))
    figures = simulation.run()
    assert figures.failures == pytest.approx(figures.seconds * 4 / 25, rel=0.3)  # each lives 20 s and is away for 5 s
    assert figures.producers_down == pytest.approx(5 / 25, rel=0.3)
    assert 0 < figures.lost < 0.1
    assert simulation.coordinator.ledgers[0].reissued > 0


def test_failures_that_no_response_survives_are_refused() -> None:
    """A response takes 100 s, and a producer lives 3.6 s on average."""
    doomed = workload(group={"response_tokens": 5000.0}, faults={"device_hours": 0.001, "restart_seconds": 1.0})
    with pytest.raises(ConfigError, match=r"^--device-hours 0\.001: producers failed 1000 times and delivered 0 groups"):
        simulate(Scenario(workload=doomed, producers=2, trainers=1))


def test_failures_that_hardly_a_response_survives_are_refused() -> None:
    """A response takes 10 s, and a producer with 2 devices lives 1.8 s on average: one life in 260 is long enough."""
    doomed = workload(
        group={"response_tokens": 500.0},
        generation={"slots": 1, "producer_devices": 2},
        faults={"device_hours": 0.001, "restart_seconds": 0.0},
    )
    with pytest.raises(ConfigError, match=r"failed \d+ times and delivered [1-9]\d* groups"):
        simulate(Scenario(workload=doomed, producers=2, trainers=1))


def test_judging_takes_workers() -> None:
    """16 verdicts of 0.5 s on two producers with two workers each: the last comes after 2 s."""
    slow = workload(rewards={"reward_seconds": 0.5, "reward_workers": 2})
    assert 1 / simulate(Scenario(workload=slow, producers=2, trainers=1)).updates_per_second == pytest.approx(1.0 + 4 * 0.5 + 1.0)


def test_a_seed_is_a_result() -> None:
    scenario = Scenario(workload=workload(group={"response_sigma": 1.0}), producers=3, trainers=2, max_staleness=2)
    assert simulate(scenario) == simulate(scenario)
    assert simulate(replace(scenario, seed=1)) != simulate(scenario)


def test_a_run_that_ends_before_its_warm_up_says_so() -> None:
    with pytest.raises(RunError, match="before anything could be measured"):
        simulate(Scenario(workload=workload(), producers=1, trainers=1, warm_up=5, max_steps=2))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"producers": 0}, "producers"), ({"trainers": 0}, "trainers"), ({"colocated": True, "max_staleness": 1}, "alternate")],
)
def test_no_cluster_has_these_numbers(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Scenario(**{"workload": workload(), "producers": 1, "trainers": 1, **wrong})
