"""An update of the weights by every transport: closed forms, which link each waits for, and laws over random fleets."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_tools.plan.advice import advise
from rlcore_plugin_tools.plan.bounds import enough_updates
from rlcore_plugin_tools.plan.simulated import Scenario, Simulation, WeightUpdate, simulate
from rlcore_plugin_tools.plan.workload_model import TransferSection
from scenarios import workload

from rlcore.api import ConfigError

HOST = ("shared", "object_store", "collective")
TRANSPORTS = (*HOST, "vllm_nccl", "direct")
RATES = {
    "device_bandwidth": 400.0,
    "copy_bandwidth": 5.0,
    "hash_bandwidth": 10.0,
    "network_bandwidth": 20.0,
    "store_bandwidth": 4.0,
    "collective_bandwidth": 2.0,
    "collect_bandwidth": 2.5,
    "load_bandwidth": 40.0,
    "transfer_seconds": 0.1,
}
FASTER = [name for name in RATES if name != "transfer_seconds"]


def an_update(transport: str = "auto", **changed: object) -> WeightUpdate:
    """20 GB from 16 trainers on two nodes to 12 engines of two devices on three."""
    fleet = {"engines": 12, "engine_devices": 2, "trainer_devices": 16, "colocated": False}
    fleet |= {name: changed.pop(name) for name in fleet.keys() & changed.keys()}
    settings = TransferSection.model_validate({"weights_gb": 20.0, "transport": transport, **RATES, **changed})
    return WeightUpdate(settings=settings, **fleet)  # type: ignore[arg-type]


GATHER = 20 * 15 / 16 / 20  # the part of the other 15 ranks, over the network
COPY = 20 / 5


@pytest.mark.parametrize(
    ("transport", "stall", "sending", "pause", "sent"),
    [
        ("object_store", GATHER + COPY, 0.1 + 2 + COPY + 3 * 20 / 4 + 2 + 8, 20 / 2 / 40, 60),
        ("collective", GATHER + COPY, 0.1 + 2 + 4 * 20 / 2 + 2 + 8, 20 / 2 / 40, 80),  # 13 processes are a tree of 4 levels
        ("vllm_nccl", GATHER + COPY, 0.1, 20 / 20, 20),
        ("direct", 20 / 20, 0.0, 20 / 20, 20),
    ],
)
def test_what_each_transport_takes_between_nodes(transport: str, stall: float, sending: float, pause: float, sent: float) -> None:
    update = an_update(transport)
    assert (update.stall, update.sending, update.pause, update.sent_gb) == pytest.approx((stall, sending, pause, sent))
    assert update.whole == pytest.approx(1.0 if transport == "direct" else stall + sending + pause)


def test_on_one_node_nothing_crosses_the_network() -> None:
    update = an_update(engines=4, engine_devices=1, trainer_devices=4)
    assert update.transport == "shared"
    assert update.stall == pytest.approx(20 * 3 / 4 / 400 + COPY)
    assert update.sending == pytest.approx(0.1 + 20 / 10)
    assert update.pause == pytest.approx(20 / 2.5 + 20 / 40)  # an engine of one device is in the producer's process
    for transport in TRANSPORTS:
        assert an_update(transport, engines=4, engine_devices=1, trainer_devices=4).sent_gb == 0


def test_an_engine_in_processes_of_its_own_works_while_weights_are_copied_for_it() -> None:
    inside, own = (an_update("collective", engine_process=where) for where in ("inside", "own"))
    assert inside.pause - own.pause == pytest.approx(20 / 2.5)
    assert inside.whole == pytest.approx(own.whole)
    assert own == replace(an_update("collective"), settings=own.settings)
    assert an_update("collective").pause == own.pause  # two devices
    assert an_update("collective", engine_devices=1).pause > own.pause


def test_auto_is_what_a_run_takes() -> None:
    assert an_update().transport == "object_store"
    assert an_update(engines=1, engine_devices=1, trainer_devices=7).transport == "shared"
    assert an_update(engines=2, engine_devices=1, trainer_devices=7).transport == "object_store"


def test_one_trainer_has_nothing_to_gather() -> None:
    assert an_update(trainer_devices=1).stall == pytest.approx(COPY)


def test_colocated_roles_copy_nothing_to_the_host() -> None:
    update = an_update("object_store", colocated=True)
    assert update.stall == pytest.approx(GATHER + 20 / 400)
    assert (update.sending, update.pause, update.sent_gb) == (0, 0, 0)


@st.composite
def updates(draw: st.DrawFn) -> WeightUpdate:
    rates = {name: draw(st.floats(0.5, 500)) for name in FASTER}
    return an_update(
        draw(st.sampled_from(["auto", *TRANSPORTS])),
        **rates,
        weights_gb=draw(st.floats(0, 500)),
        engine_process=draw(st.sampled_from(["auto", "inside", "own"])),
        engines=draw(st.integers(1, 2000)),
        engine_devices=draw(st.sampled_from([1, 2, 8])),
        trainer_devices=draw(st.integers(1, 4000)),
        colocated=draw(st.booleans()),
    )


def changed(update: WeightUpdate, **settings: object) -> WeightUpdate:
    return replace(update, settings=update.settings.model_copy(update=settings))


@given(updates(), st.sampled_from(FASTER), st.floats(1, 100))
def test_more_bandwidth_is_never_slower(update: WeightUpdate, rate: str, factor: float) -> None:
    faster = changed(update, **{rate: getattr(update.settings, rate) * factor})
    for part in ("gather", "copy", "stall", "sending", "pause", "whole"):
        assert getattr(faster, part) <= getattr(update, part) * (1 + 1e-9), part


@given(updates(), st.floats(1, 100))
def test_more_to_move_is_never_quicker(update: WeightUpdate, factor: float) -> None:
    larger = changed(update, weights_gb=update.settings.weights_gb * factor)
    more = replace(update, engines=update.engines * 2)
    for part in ("stall", "sending", "pause", "whole", "sent_gb"):
        assert getattr(larger, part) * (1 + 1e-9) >= getattr(update, part), part
        assert update.one_node or getattr(more, part) >= getattr(update, part), part


@given(updates())
def test_the_trainers_stand_still_for_no_engine(update: WeightUpdate) -> None:
    """Whatever the engines are, unless they read what the trainers hold: the send goes on beside the next update."""
    slow = changed(replace(update, engines=update.engines + 1000), store_bandwidth=0.01, collective_bandwidth=0.01, load_bandwidth=0.01)
    assert slow.stall == update.stall or update.transport == "direct"


# --- in the simulation ---------------------------------------------------------------------------------------------------

PARTS = {"weights_gb": 1.0, "transport": "shared", "device_bandwidth": 1e9, "hash_bandwidth": 2.0, "copy_bandwidth": 5.0}
LOAD = {"collect_bandwidth": 10.0, "load_bandwidth": 20.0, "transfer_seconds": 0.0}
"""Two producers and one trainer: it stands still for 0.2 s, sends for 0.5 s, and engines stand still for 0.1 + 0.05 s."""


def test_synchronous_updates_wait_for_every_part() -> None:
    figures = simulate(Scenario(workload=workload(weights={**PARTS, **LOAD}), producers=2, trainers=1))
    period = 1.0 + 1.0 + 0.2 + 0.5 + 0.15
    assert 1 / figures.updates_per_second == pytest.approx(period)
    assert figures.publishing == pytest.approx(0.2 / period)
    assert figures.taking == pytest.approx(0.15 / period)


@pytest.mark.parametrize(("update", "period"), [(1.0, 1.2), (0.5, 1.15)], ids=["the trainer stands still", "the engines stand still"])
def test_overlapped_only_what_stands_still_is_lost(update: float, period: float) -> None:
    """Generating takes 1 s and 0.15 s for each version; training takes ``update`` and 0.2 s; what is sent meanwhile costs nobody."""
    costly = workload(weights={**PARTS, **LOAD}, update={"update_seconds": update})
    figures = simulate(Scenario(workload=costly, producers=2, trainers=1, max_staleness=4, warm_up=10, updates=40))
    assert 1 / figures.updates_per_second == pytest.approx(period, rel=0.01)
    assert figures.bubble == pytest.approx(1 - update / period, abs=0.01)


def test_a_version_that_takes_long_to_send_is_skipped_over_and_makes_data_older() -> None:
    """Sending takes 3.5 updates of 1 s: nothing stands still for it where staleness allows for it, and everything where not."""
    slow = {"weights_gb": 1.0, "transport": "shared", "device_bandwidth": 1e9, "copy_bandwidth": 1e9, "collect_bandwidth": 1e9}
    slow |= {"load_bandwidth": 1e9, "hash_bandwidth": 1 / 3.5, "transfer_seconds": 0.0}
    long = Scenario(workload=workload(weights=slow), producers=2, trainers=1, max_staleness=12, warm_up=30, updates=40)
    ahead = simulate(long)
    assert 1 / ahead.updates_per_second == pytest.approx(1.0, rel=0.02)
    assert ahead.staleness_mean > 4
    assert simulate(replace(long, max_staleness=2)).bubble > 0.3


def test_as_many_updates_are_measured_as_show_several_versions_on_their_way() -> None:
    """Sending takes 100 updates. Everybody waits for each version; the next one to be sent is the newest at that moment, one or two updates
    newer."""
    slow = {"weights_gb": 100.0, "transport": "shared", "device_bandwidth": 1e9, "copy_bandwidth": 1e9, "hash_bandwidth": 1.0}
    waiting = Scenario(workload=workload(weights=slow), producers=2, trainers=1, max_staleness=2, updates=2)
    assert enough_updates(waiting, 2) == 4 * 3
    assert enough_updates(waiting, 50) == 50
    assert enough_updates(replace(waiting, workload=workload()), 2) == 4  # nothing is sent: one version an update
    figures = simulate(replace(waiting, updates=enough_updates(waiting, 2), warm_up=8))
    assert figures.updates_per_second == pytest.approx(1.5 / 100, rel=0.02)


@pytest.mark.parametrize("seconds", [0.0, 1e-300])
def test_updates_may_take_no_time(seconds: float) -> None:
    instant = workload(weights={"weights_gb": 1.0}, update={"update_seconds": seconds, "token_seconds": 0.0})
    assert enough_updates(Scenario(workload=instant, producers=2, trainers=1, max_staleness=2), 2) == 4 * 3
    assert advise(instant, 3, max_staleness=1, updates=4).zero_bubble.speed > 0


def test_the_sender_of_a_broadcast_is_taken_until_the_engines_have_it() -> None:
    """Engines stand still for 1.5 s for each version. By the first update, after 1.25 s, four batches are there or on their way: the next
    version is there a second later, and waits for half a second."""
    broadcast = {"weights_gb": 1.5, "transport": "vllm_nccl", "load_bandwidth": 1.0, "copy_bandwidth": 1e9, "transfer_seconds": 0.0}
    quick = workload(weights=broadcast, generation={"step_seconds": 0.005})
    simulation = Simulation(Scenario(workload=quick, producers=2, trainers=1, max_staleness=12, updates=9, warm_up=0))
    began: dict[int, float] = {}
    while not simulation.done:
        simulation.step()
        began.setdefault(simulation._arrived, simulation.now)
    moments = [moment for version, moment in began.items() if version]
    assert moments[:2] == pytest.approx([1.25, 1.25 + 1.5], abs=0.01)
    assert min(after - before for before, after in pairwise(moments)) >= 1.5 - 1e-9


def test_directly_both_sides_stand_still_at_the_same_time() -> None:
    direct = {"weights_gb": 1.0, "transport": "direct", "device_bandwidth": 5.0, "transfer_seconds": 0.0}
    figures = simulate(Scenario(workload=workload(weights=direct), producers=2, trainers=1))
    assert 1 / figures.updates_per_second == pytest.approx(1.0 + 1.0 + 0.2)


def test_a_slice_sends_to_the_whole_cluster() -> None:
    whole = Scenario(workload=workload(group={"train_batch_size": 512}, weights={"weights_gb": 5.0}), producers=64, trainers=64)
    small, parts = whole.sliced(64)
    assert parts > 1
    assert small.weight_update == whole.weight_update
    assert small.sliced(16)[0].weight_update == whole.weight_update


def test_shared_memory_on_several_nodes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--transport shared: 9 devices are on 2 nodes .* type --transport object_store"):
        advise(workload(weights={"transport": "shared"}), 9)
    assert advise(workload(weights={"transport": "shared"}), 8, updates=3).flags.endswith("--transport shared")


def test_what_does_not_exist_is_not_typed() -> None:
    assert "--transport" not in advise(workload(weights={"transport": "direct"}), 4, updates=3).flags
    assert "--transport" not in advise(workload(), 4, updates=3).flags
