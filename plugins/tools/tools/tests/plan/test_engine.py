"""Continuous batching as processor sharing: ends, shares and losses against sums by hand."""

from __future__ import annotations

import pytest
from rlcore_plugin_tools.plan.simulated import Scenario
from rlcore_plugin_tools.plan.simulated_engine import Engine, Work
from rlcore_plugin_tools.plan.simulated_producer import SimulatedProducer
from rlcore_plugin_tools.plan.workload_model import GenerationSection
from scenarios import workload

SETTINGS = GenerationSection(slots=2, step_seconds=1.0, request_seconds=0.5, prefill_tokens_per_second=10.0)
"""One request decodes a token in 1.5 s, two in 2 s each."""


def group(*lengths: float, prompt: float = 0.0) -> Work:
    return Work(lease_id=0, prompt_tokens=prompt, lengths=list(lengths), open=len(lengths))


def test_a_step_is_longer_with_more_requests() -> None:
    engine, work = Engine(SETTINGS), group(2.0, 6.0)
    engine.submit(0.0, [work])
    assert engine.next_end() == pytest.approx(2 * 2.0)
    assert engine.end(4.0) == []
    assert engine.next_end() == pytest.approx(4.0 + 4 * 1.5)
    assert engine.end(10.0) == [work]
    assert (engine.busy, engine.slot_seconds, engine.tokens) == pytest.approx((10.0, 2 * 4 + 6, 8.0))
    assert engine.next_end() is None


def test_a_free_slot_is_refilled_at_once_and_its_version_is_that_moments() -> None:
    engine, first, second = Engine(SETTINGS), group(2.0, 4.0), group(1.0)
    engine.submit(0.0, [first, second])
    engine.serving = 3
    assert engine.running == 2
    engine.end(4.0)
    assert engine.running == 2
    assert (first.version, second.version) == (0, 3)
    assert engine.end(6.0) == [second]


def test_prefill_and_swaps_hold_decoding_up() -> None:
    engine = Engine(SETTINGS)
    engine.submit(0.0, [group(2.0, prompt=20.0)])
    engine.pause(1.0, 0.5)
    assert engine.next_end() == pytest.approx(2.0 + 0.5 + 2 * 1.5)


def test_batch_synchronous_answers_come_together() -> None:
    engine, short, long, late = Engine(SETTINGS.model_copy(update={"batching": "batch"})), group(1.0), group(3.0), group(1.0)
    engine.submit(0.0, [short, long])
    engine.submit(0.5, [late])
    assert engine.end(2.0) == []
    moment = engine.next_end()
    assert moment == pytest.approx(2.0 + 2 * 1.5)
    assert engine.end(moment) == [short, long]
    assert engine.next_end() == pytest.approx(5.0 + 1.5)


def test_what_dies_half_done_is_counted() -> None:
    engine = Engine(SETTINGS)
    engine.submit(0.0, [group(10.0), group(10.0)])
    assert engine.die(6.0) == pytest.approx(2 * 3.0)
    assert engine.running == 0
    assert engine.tokens == pytest.approx(6.0)


def test_a_group_is_as_old_as_its_first_response() -> None:
    engine, work = Engine(SETTINGS), group(1.0, 3.0, 1.0)
    engine.submit(0.0, [work])
    engine.serving = 3
    engine.end(2.0)
    assert engine.running == 2  # the third response has begun, with newer weights
    assert work.version == 0


def test_a_producer_that_dies_loses_what_had_ended_too() -> None:
    parts = workload(generation={"slots": 2, "step_seconds": 1.0})
    producer = SimulatedProducer(0, Scenario(workload=parts, producers=1, trainers=1))
    producer.held[0] = group(2.0, 10.0)
    producer.engine.submit(0.0, [producer.held[0]])
    producer.engine.end(2.0)
    assert producer.die(5.0) == pytest.approx(2.0 + 5.0)
    assert not producer.held
    assert not producer.alive
