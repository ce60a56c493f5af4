"""How many processes the tests of this folder kill by signal 9; each test asserts its own."""

from __future__ import annotations

import pytest

from tests.integration.ray import test_ray_ends, test_ray_evaluation, test_ray_producers, test_ray_services


@pytest.mark.fast
def test_the_suite_kills_at_least_thirty() -> None:
    kills = [module.KILLS for module in (test_ray_producers, test_ray_services, test_ray_ends, test_ray_evaluation)]
    assert test_ray_producers.KILLS >= 20
    assert sum(kills) >= 30
