"""Workloads whose figures are known in closed form, and random ones for the laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from rlcore_plugin_tools.plan.simulated import Scenario, Workload

NO_OVERHEAD = dict.fromkeys(
    ("lease_seconds", "deliver_seconds", "handover_seconds", "publish_seconds", "swap_seconds", "switch_seconds"), 0.0
)
PLAIN: dict[str, dict[str, Any]] = {
    "group": {"prompt_tokens": 1e-9, "response_tokens": 50.0, "response_sigma": 0.0, "num_generations": 1, "train_batch_size": 16},
    "generation": {"slots": 8, "step_seconds": 0.02, "request_seconds": 0.0, "prefill_tokens_per_second": 1e9},
    "update": {"update_seconds": 1.0, "token_seconds": 0.0},
    "weights": {"weights_gb": 0.0, "transfer_seconds": 0.0},
    "rewards": {"reward_seconds": 0.0, "reward_sigma": 0.0},
    "overheads": NO_OVERHEAD,
}
"""Two producers generate a batch in 50 x 0.02 = 1 s, all slots full; an update takes 1 s; everything else takes no time."""


def workload(**tables: Mapping[str, Any]) -> Workload:
    """PLAIN, with some keys of some tables changed."""
    names = {*PLAIN, *tables}
    return Workload.model_validate({name: {**PLAIN.get(name, {}), **tables.get(name, {})} for name in names})


@st.composite
def scenarios(draw: st.DrawFn, *, faults: bool = True, plain_engine: bool = False) -> Scenario:
    """Small clusters of every kind; ``plain_engine``: continuous batching, weights taken live, nothing filtered."""
    number = st.floats
    tables: dict[str, dict[str, Any]] = {
        "group": {
            "prompt_tokens": draw(number(1, 100)),
            "prompt_sigma": draw(st.sampled_from([0.0, 0.5])),
            "response_tokens": draw(number(10, 100)),
            "response_sigma": draw(st.sampled_from([0.0, 0.5, 1.0])),
            "length_cut": draw(st.sampled_from([2.0, 8.0])),
            "num_generations": draw(st.integers(1, 4)),
            "train_batch_size": draw(st.integers(1, 12)),
            "filtered": 0.0 if plain_engine else draw(st.sampled_from([0.0, 0.3])),
        },
        "generation": {
            "slots": draw(st.integers(1, 8)),
            "request_seconds": draw(st.sampled_from([0.0, 0.002])),
            "prefill_tokens_per_second": draw(number(1e3, 1e6)),
            "batching": "continuous" if plain_engine else draw(st.sampled_from(["continuous", "batch"])),
        },
        "update": {"update_seconds": draw(number(0, 2)), "token_seconds": draw(number(0, 1e-3))},
        "weights": {
            "weights_gb": draw(st.sampled_from([0.0, 1.0, 20.0])),
            "transport": draw(st.sampled_from(["auto", "collective", "vllm_nccl", "direct"])),
            "engine_process": draw(st.sampled_from(["inside", "own"])),
            "transfer_seconds": draw(number(0, 1)),
            "weights_taken": "live" if plain_engine else draw(st.sampled_from(["live", "between"])),
        },
        "rewards": {"reward_seconds": draw(st.sampled_from([0.0, 0.1])), "reward_sigma": 1.0, "reward_workers": draw(st.integers(1, 4))},
        "overheads": dict.fromkeys(NO_OVERHEAD, draw(number(0, 0.01))),
    }
    if faults and draw(st.booleans()):
        tables["faults"] = {"device_hours": draw(number(5, 60)) / 3600, "restart_seconds": draw(number(0, 10))}
    staleness = draw(st.integers(0, 4))
    batch = tables["group"]["train_batch_size"]
    return Scenario(
        workload=workload(**tables),
        producers=draw(st.integers(1, 6)),
        trainers=draw(st.integers(1, 4)),
        max_staleness=staleness,
        buffer_limit=draw(st.none() | st.integers(batch, (staleness + 1) * batch)),
        in_flight=draw(st.none() | st.integers(1, 8)),
        updates=draw(st.integers(3, 12)),
        warm_up=0,
        seed=draw(st.integers(0, 1000)),
    )
