"""The number of prompts in flight: as many as fill the slots of an engine, never outside its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_workers.flight import FlightControl, flight_control, prompts_wanted

from rlcore.api.runtime import RunConfig
from tests.producer_stage import Stage, snapshot

SEEN = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50), st.integers(0, 400), st.integers(0, 3)), max_size=20)


@given(slots=st.integers(1, 64), least=st.integers(1, 20), more=st.integers(0, 40), seen=SEEN)
def test_the_number_is_within_its_bounds_whatever_was_seen(
    slots: int, least: int, more: int, seen: list[tuple[float, int, int, int]]
) -> None:
    control = FlightControl(slots, least, least + more)
    for seconds, prompts, requests, groups in seen:
        control.saw(seconds, prompts, requests)
        control.ended(groups)
        assert least <= control.limit <= least + more
    assert any(groups for *_, groups in seen) or control.limit == least


@given(slots=st.integers(1, 64), prompts=st.floats(0.1, 100), requests=st.floats(0.1, 1000), more=st.floats(0, 1000))
def test_more_requests_of_the_same_prompts_never_want_more_prompts(slots: int, prompts: float, requests: float, more: float) -> None:
    assert prompts_wanted(slots, prompts, requests + more) <= prompts_wanted(slots, prompts, requests)


@given(slots=st.integers(2, 64), rollouts=st.integers(1, 8), asking=st.floats(0.05, 1.0), start=st.integers(1, 8))
def test_it_settles_where_the_requests_fill_the_slots(slots: int, rollouts: int, asking: float, start: int) -> None:
    """Each prompt has ``rollouts * asking`` requests open on average, whatever else is in flight."""
    control = FlightControl(slots, 1, 10_000)
    flying = start
    for _ in range(100):
        control.saw(1.0, 100 * flying, round(100 * flying * rollouts * asking))
        control.ended(1)
        flying = control.limit
    filled = flying * rollouts * asking
    assert flying == 1 or slots <= filled <= 1.3 * slots + 2 * rollouts


def test_queueing_requests_lower_it_again_as_far_as_the_setting() -> None:
    control = FlightControl(8, 2, 20)
    control.saw(1.0, 2, 1)
    control.ended(1)
    assert control.limit == 20
    for _ in range(60):
        control.saw(1.0, 20, 160)
        control.ended(1)
    assert control.limit == 2


@pytest.mark.parametrize(("staleness", "most", "expected"), [(1, 30, 30), (0, 30, 4), (1, 2, 4)])
def test_at_staleness_0_and_below_the_batch_size_the_number_is_fixed(staleness: int, most: int, expected: int) -> None:
    values: dict[str, Any] = {
        "sampling": {"num_generations": 3, "oversampling": 2},
        "inference": {"inference_batch_size": 4, "inference_microbatch_size": 2, "max_in_flight": most},
        "schedule": {"max_staleness": staleness},
    }
    control = flight_control(RunConfig.model_validate(values))
    assert (control.slots, control.least, control.most) == (10, 4, expected)


def test_a_producer_whose_engine_has_free_slots_asks_for_more_leases(tmp_path: Path) -> None:
    stage = Stage(tmp_path, in_flight=2, most=5)  # the engine has eight slots, and each prompt one request
    stage.receiver.hand(snapshot(0))
    stage.grant(0, 1)
    stage.endpoints.until(lambda: len(stage.endpoints.groups) == 2 and bool(stage.endpoints.asked))
    stage.grant(2)
    stage.endpoints.until(lambda: len(stage.endpoints.groups) == 3 and bool(stage.endpoints.asked))
    assert max(asked for asked, *_ in stage.endpoints.asked) > 2
    stage.stop()
