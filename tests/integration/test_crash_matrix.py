"""A run that is killed before an event goes on to the same bits; with producers beside the trainer, each prompt is trained once.

The program of `make crash-matrix` is a process of its own: a fork of one that has Ray in it, as that of other tests, may hang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.testing.run_tester import QUIET

ROOT = Path(__file__).parents[2]
EVERY = 5
"""Of the events, in each of the shares, which are all of them together."""
UNSAMPLED = ("--sampled", 0, "--sampled-beside", 0)


def found(*words: object) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash", *map(str, words)], cwd=ROOT, env={**os.environ, **QUIET}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", [3, *(pytest.param(first, marks=pytest.mark.nightly) for first in (1, 2, 4, 5))])
def test_killed_before_an_event_it_goes_on_to_the_same_bits(first: int) -> None:
    """Every fourth of them is killed in its second life as well."""
    counts = found(
        "--first", first, "--every", EVERY, "--seed", first, "--ends", 2, "--steered", 0, *UNSAMPLED, "--beside", 0, "--episodes", 0
    )
    assert counts["cut_points"] >= 60
    assert counts["killed_twice"] >= 15
    assert counts["cut_points_ends"] == 2


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_run_that_plugins_steer_goes_on_to_the_same_bits() -> None:
    """A controller that stops it, a schedule, a loss with a state, and a reference that moves."""
    assert found("--every", 1000, "--ends", 0, "--steered", 12, *UNSAMPLED, "--beside", 0, "--episodes", 0)["cut_points_steered"] == 12


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_run_with_two_sources_and_samplers_goes_on_to_the_same_bits_and_draws_each_prompt_once_above_staleness_0() -> None:
    counts = found("--every", 1000, "--ends", 0, "--steered", 0, "--sampled", 10, "--sampled-beside", 4, "--beside", 0, "--episodes", 0)
    assert (counts["cut_points_samplers"], counts["cut_points_samplers_staleness_2"]) == (10, 4)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_with_producers_beside_the_trainer_each_prompt_is_trained_once() -> None:
    assert found("--every", 1000, "--ends", 0, "--steered", 0, *UNSAMPLED, "--beside", 16, "--episodes", 0)["cut_points_staleness_2"] == 16


@pytest.mark.full
@pytest.mark.timeout(600)
def test_with_episodes_in_flight_each_prompt_is_trained_once_and_no_process_is_left() -> None:
    assert found("--every", 1000, "--ends", 0, "--steered", 0, *UNSAMPLED, "--beside", 0, "--episodes", 4)["cut_points_episodes"] == 4


@pytest.mark.full
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_with_episodes_in_flight_at_more_events() -> None:
    assert found("--every", 1000, "--ends", 0, "--steered", 0, *UNSAMPLED, "--beside", 0, "--episodes", 24)["cut_points_episodes"] == 24
