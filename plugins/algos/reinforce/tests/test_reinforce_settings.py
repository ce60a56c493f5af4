"""The numbers of the recipes and the bounds of the options, written down a second time: from the papers, not from the code."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from rlcore_plugin_reinforce import rlcore_register_algorithms, rlcore_register_losses
from rlcore_plugin_reinforce.options import ReinforcePlusPlusOptions

from rlcore.testing import assert_option, recipe_numbers

RECIPES = {spec.name: spec for spec in rlcore_register_algorithms()}

NUMBERS: dict[str, dict[str, float]] = {
    "reinforce++": {"kl_coeff": 0.01, "options.gamma": 1.0, "options.clip_eps_low": 0.2, "options.clip_eps_high": 0.2},
    "reinforce_ppb": {"kl_coeff": 0.01, "options.clip_eps_low": 0.2, "options.clip_eps_high": 0.2},
    "remax": {"kl_coeff": 0.0, "updates_per_batch": 1, "epochs_per_batch": 1, "schedule.max_staleness": 0},
    "opo": {"kl_coeff": 0.0, "entropy_coeff": 0.0, "updates_per_batch": 1, "epochs_per_batch": 1, "schedule.max_staleness": 0},
    "gpg": {"kl_coeff": 0.0, "updates_per_batch": 1, "epochs_per_batch": 1, "schedule.max_staleness": 0},
}

# Model, field, default, the values at the edge that are taken, those beyond it that are not.
BOUNDS: list[tuple[type[BaseModel], str, float, tuple[float, ...], tuple[float, ...]]] = [
    (ReinforcePlusPlusOptions, "gamma", 1.0, (1e-6, 1.0), (0.0, -0.1, 1.000001)),
]


def test_every_recipe_has_its_numbers_here() -> None:
    assert set(NUMBERS) == set(RECIPES)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_are_those_of_the_paper(name: str) -> None:
    assert recipe_numbers(RECIPES[name]) == NUMBERS[name]


@pytest.mark.parametrize(("model", "field", "default", "taken", "refused"), BOUNDS, ids=[f"{row[0].__name__}.{row[1]}" for row in BOUNDS])
def test_options_have_their_default_and_their_bounds(
    model: type[BaseModel], field: str, default: float, taken: tuple[float, ...], refused: tuple[float, ...]
) -> None:
    assert_option(model, field, default, taken, refused)


def test_gpg_is_for_fresh_data() -> None:
    """The core refuses stale data and several steps where a loss has no ratio; without this mark it would not know."""
    assert {spec.name: spec.on_policy for spec in rlcore_register_losses()} == {"gpg": True}
