"""The settings of a workload: every default is explained, and every number that is allowed can be simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlcore_plugin_tools.plan.simulated import Scenario, Workload, simulate
from rlcore_plugin_tools.plan.workload_file import load_workload, workload_settings

from rlcore.api import ConfigError

PAGE = Path(__file__).parents[5] / "docs/how_to/planning.md"
HUGE, TINY = 1e9, 1e-6
BANDWIDTHS = [name for name in Workload().weights.model_dump() if name.endswith("_bandwidth")]


@pytest.mark.parametrize("path", workload_settings())
def test_the_page_says_where_every_default_is_from(path: str) -> None:
    sources = PAGE.read_text(encoding="utf-8").partition("## What the defaults assume")[2].partition("\n## ")[0]
    assert f"`{path.partition('.')[2]}`" in sources


@pytest.mark.parametrize("overheads", [0.0, HUGE])
@pytest.mark.parametrize("speed", [TINY, HUGE])
@pytest.mark.parametrize("seconds", [TINY, HUGE])
def test_the_ends_of_every_range_can_be_simulated(seconds: float, speed: float, overheads: float) -> None:
    extreme = Workload.model_validate(
        {
            "group": {"response_tokens": 10_000_000, "response_sigma": 10, "length_cut": 1_000_000, "train_batch_size": 4},
            "generation": {"step_seconds": seconds, "request_seconds": overheads, "prefill_tokens_per_second": speed},
            "update": {"update_seconds": overheads, "token_seconds": overheads},
            "weights": {"weights_gb": 100_000, **dict.fromkeys(BANDWIDTHS, 0.001), "transfer_seconds": overheads},
            "rewards": {"reward_seconds": overheads, "reward_sigma": 10},
            "overheads": dict.fromkeys(Workload().overheads.model_dump(), overheads),
        }
    )
    figures = simulate(Scenario(workload=extreme, producers=2, trainers=1, max_staleness=2, updates=3))
    assert figures.updates_per_second > 0
    json.dumps(figures.as_json(), allow_nan=False)


def test_a_batch_of_more_responses_than_can_be_simulated_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "big.toml"
    file.write_text("[group]\ntrain_batch_size = 1000000\nnum_generations = 65536\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"65,536,000,000 responses per update; at most 262,144 .* type a smaller -tbs or -g"):
        load_workload(file, {})
