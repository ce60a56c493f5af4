"""The numbers of the recipes and the bounds of the options, written down a second time: from the papers, not from the code."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from rlcore_plugin_grpo import rlcore_register_algorithms, rlcore_register_losses
from rlcore_plugin_grpo.cispo import CispoOptions
from rlcore_plugin_grpo.gmpo import GmpoOptions
from rlcore_plugin_grpo.gspo import GspoOptions
from rlcore_plugin_grpo.pass_at_k import PassAtKOptions
from rlcore_plugin_grpo.sapo import SapoOptions

from rlcore.testing import assert_option, recipe_numbers

RECIPES = {spec.name: spec for spec in rlcore_register_algorithms()}

NUMBERS: dict[str, dict[str, float]] = {
    "grpo": {"kl_coeff": 0.01, "options.clip_eps_low": 0.2, "options.clip_eps_high": 0.2},
    "dr_grpo": {"kl_coeff": 0.0, "options.clip_eps_low": 0.2, "options.clip_eps_high": 0.2},
    "gspo": {"kl_coeff": 0.0, "updates_per_batch": 4, "options.sequence_eps_low": 0.0003, "options.sequence_eps_high": 0.0004},
    "gmpo": {"kl_coeff": 0.0, "options.log_clip_low": 0.4, "options.log_clip_high": 0.4},
    "cispo": {"kl_coeff": 0.0, "options.weight_eps_low": 1.0, "options.weight_eps_high": 4.0},
    "sapo": {"kl_coeff": 0.0, "options.tau_pos": 1.0, "options.tau_neg": 1.05},
    "maxrl": {"kl_coeff": 0.0, "options.clip_eps_low": 0.2, "options.clip_eps_high": 0.2},
}

# Model, field, default, the values at the edge that are taken, those beyond it that are not.
BOUNDS: list[tuple[type[BaseModel], str, float, tuple[float, ...], tuple[float, ...]]] = [
    (CispoOptions, "weight_eps_low", 1.0, (1e-6, 1.0), (0.0, -0.1, 1.000001)),
    (CispoOptions, "weight_eps_high", 4.0, (1e-6, 0.99, 50.0), (0.0, -0.1)),
    (GmpoOptions, "log_clip_low", 0.4, (1e-6, 0.99, 50.0), (0.0, -0.1)),
    (GmpoOptions, "log_clip_high", 0.4, (1e-6, 0.99, 50.0), (0.0, -0.1)),
    (GspoOptions, "sequence_eps_low", 3e-4, (1e-6, 1.0), (0.0, -0.1, 1.000001)),
    (GspoOptions, "sequence_eps_high", 4e-4, (1e-6, 0.99, 50.0), (0.0, -0.1)),
    (PassAtKOptions, "k", 4, (2, 100), (1, 0)),
    (SapoOptions, "tau_pos", 1.0, (1e-6, 0.99, 50.0), (0.0, -0.1)),
    (SapoOptions, "tau_neg", 1.05, (1e-6, 0.99, 50.0), (0.0, -0.1)),
]


def test_every_recipe_has_its_numbers_here() -> None:
    """Those of ``clip_cov`` and ``kl_cov`` are in test_entropy_settings.py."""
    assert set(NUMBERS) | {"clip_cov", "kl_cov"} == set(RECIPES)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_are_those_of_the_paper(name: str) -> None:
    assert recipe_numbers(RECIPES[name]) == NUMBERS[name]


@pytest.mark.parametrize(("model", "field", "default", "taken", "refused"), BOUNDS, ids=[f"{row[0].__name__}.{row[1]}" for row in BOUNDS])
def test_options_have_their_default_and_their_bounds(
    model: type[BaseModel], field: str, default: float, taken: tuple[float, ...], refused: tuple[float, ...]
) -> None:
    assert_option(model, field, default, taken, refused)


def test_the_losses_with_one_ratio_a_response_say_so() -> None:
    assert {spec.name for spec in rlcore_register_losses() if spec.sequence_ratio} == {"gspo", "gmpo"}
    assert {spec.name for spec in rlcore_register_losses() if spec.one_advantage} == {"gspo"}
