"""The numbers of the recipes and the bounds of the options, written down a second time: from the papers, not from the code."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from rlcore_plugin_grpo import clip_cov, kl_cov
from rlcore_plugin_grpo.clip_cov import ClipCovOptions
from rlcore_plugin_grpo.kl_cov import KlCovOptions

from rlcore.testing import assert_option, recipe_numbers

RECIPES = {spec.name: spec for spec in (clip_cov.RECIPE, kl_cov.RECIPE)}

NUMBERS: dict[str, dict[str, float]] = {
    "clip_cov": {
        "kl_coeff": 0.0,
        "updates_per_batch": 8,
        "options.clip_eps_low": 0.2,
        "options.clip_eps_high": 0.2,
        "options.clip_cov_share": 0.0002,
        "options.cov_low": 1.0,
        "options.cov_high": 5.0,
    },
    "kl_cov": {"kl_coeff": 0.0, "updates_per_batch": 8, "options.kl_cov_share": 0.002, "options.kl_cov_coeff": 1.0},
}

# Model, field, default, the values at the edge that are taken, those beyond it that are not.
BOUNDS: list[tuple[type[BaseModel], str, float, tuple[float, ...], tuple[float, ...]]] = [
    (ClipCovOptions, "clip_eps_low", 0.2, (1e-6, 1.0), (0.0, -0.1, 1.000001)),
    (ClipCovOptions, "clip_eps_high", 0.2, (1e-6, 0.99, 50.0), (0.0, -0.1)),
    (ClipCovOptions, "clip_cov_share", 2e-4, (1e-6, 1.0), (0.0, -0.1, 1.000001)),
    (ClipCovOptions, "cov_low", 1.0, (-3.0, 5.0), (5.1,)),
    (ClipCovOptions, "cov_high", 5.0, (1.0, 80.0), (0.9,)),
    (KlCovOptions, "kl_cov_share", 2e-3, (1e-6, 1.0), (0.0, -0.1, 1.000001)),
    (KlCovOptions, "kl_cov_coeff", 1.0, (0.0, 50.0), (-1e-6,)),
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
