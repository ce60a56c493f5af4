"""The temperature of each lease, from its policy version alone; and that a job takes it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.contracts.lease import Lease
from rlcore.contracts.types import Message, Prompt, Sampling
from rlcore.runtime.factories import AnnealedSampling, JobMaker, SourceJobs

SAMPLING = Sampling(temperature=1.2, top_p=0.9, max_new_tokens=7, stop=("x",))
TEMPERATURES = st.floats(0.01, 10.0)


def annealed(start: float, end: float | None, updates: int) -> AnnealedSampling:
    return AnnealedSampling(sampling=Sampling(temperature=start), end=end, updates=updates)


def test_five_updates_by_hand() -> None:
    sampling = annealed(1.2, 0.8, 5)
    assert [sampling.at(version).temperature for version in range(7)] == pytest.approx([1.2, 1.1, 1.0, 0.9, 0.8, 0.8, 0.8])


def test_it_may_rise() -> None:
    assert [annealed(0.5, 1.5, 3).at(version).temperature for version in range(4)] == [0.5, 1.0, 1.5, 1.5]


def test_without_an_end_it_is_constant_and_the_very_same() -> None:
    sampling = AnnealedSampling(sampling=SAMPLING, end=None, updates=5)
    assert all(sampling.at(version) is SAMPLING for version in range(9))


def test_a_run_of_one_update_is_sampled_at_the_start() -> None:
    assert [annealed(1.2, 0.8, 1).at(version).temperature for version in (0, 1)] == [1.2, 0.8]


def test_nothing_but_the_temperature_changes() -> None:
    moved = AnnealedSampling(sampling=SAMPLING, end=0.6, updates=2).at(1)
    assert moved == Sampling(temperature=0.6, top_p=0.9, max_new_tokens=7, stop=("x",))


@given(TEMPERATURES, TEMPERATURES, st.integers(1, 1000))
def test_laws(start: float, end: float, updates: int) -> None:
    """Start and end exactly, never beyond either, never back, steps of one size."""
    values = [annealed(start, end, updates).at(version).temperature for version in range(updates)]
    assert values[0] == start
    assert annealed(start, end, updates).at(max(1, updates - 1)).temperature == end
    # Rounding may carry a step past the end by the last bit of the larger of the two.
    slack = 1e-15 * max(start, end)
    assert all(min(start, end) - slack <= value <= max(start, end) + slack for value in values)
    steps = [after - before for before, after in pairwise(values)]
    assert steps == pytest.approx([(end - start) / max(1, updates - 1)] * len(steps), abs=1e-13)


def test_a_job_is_sampled_at_its_leases_version_and_its_greedy_rollouts_at_zero() -> None:
    prompt = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="a"),))
    jobs = JobMaker([SourceJobs(prompts=(prompt,), sampling=annealed(1.2, 0.8, 5))], 0)
    for lease_id, (version, temperature) in enumerate(((0, 1.2), (4, 0.8), (2, 1.0))):
        lease = Lease(lease_id=lease_id, episode=0, prompt_index=0, n_sampled=2, n_greedy=1, version=version)
        drawn = [sampling.temperature for sampling in jobs.job(lease).samplings]
        assert drawn == pytest.approx([temperature, temperature, 0.0])
