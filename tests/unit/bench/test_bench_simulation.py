"""The comparison of simulated and real runs: which configurations it takes, and that both draw the same lengths."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_tools.plan.simulated import Scenario

from benchmarks.paced import PacedInferenceOptions, response_tokens
from benchmarks.planning_plot import bars
from benchmarks.simulation import PROMPTS, Delays, Seen, Stage, Trial, _chosen, _compared, _predicted, _SameLengths, _workload, main
from rlcore.testing import LengthKind

NO_DELAY = Delays(lease=0.0, deliver=0.0, handover=0.0, publish=0.0, swap=0.0, transfer=0.0, computing=0.0)
TRIAL = Trial(producers=2, slots=8, generations=1, batch=16, in_flight=8, staleness=0, pace=0.01, update=0.5)


@pytest.mark.parametrize("typed", ["--trials 0", "--updates 0", "--warmup -1", "--seed -1", "--trials many", "--updates 1000001"])
def test_numbers_that_no_comparison_has_are_refused(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", "--runtime", "local", *typed.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    flag, word = typed.split()
    assert f"argument {flag}: '{word}' must be a whole number from " in capsys.readouterr().err


def test_a_seed_chooses_the_configurations() -> None:
    assert _chosen(3, 5, 3) == _chosen(3, 5, 3)
    assert _chosen(3, 5, 3) != _chosen(4, 5, 3)
    assert {trial.producers for trial in _chosen(0, 20, 1)} == {1}


def test_the_simulation_draws_the_lengths_of_the_paced_engine() -> None:
    trial = Trial(producers=1, slots=4, generations=2, batch=4, in_flight=2, staleness=0, pace=0.01, update=0.1, sigma=1.0)
    scenario = Scenario(workload=_workload(trial, NO_DELAY), producers=1, trainers=1)
    draws = _SameLengths(scenario, trial)
    options = PacedInferenceOptions(lengths=LengthKind.LOGNORMAL, mean_length=64, sigma=1.0, cut=4.0, slots=4, seconds_per_token=0.01)
    for place in range(PROMPTS + 2):
        episode, prompt = divmod(place, PROMPTS)
        assert draws.responses() == [response_tokens((0, episode, prompt, rollout), options) for rollout in (0, 1)]


def test_constant_lengths_without_delays_are_predicted_by_hand() -> None:
    stage = Stage(Path(), "ray", updates=10, warmup=2)
    seen = _predicted(stage, TRIAL, NO_DELAY)
    assert seen.updates_per_second == pytest.approx(1 / (0.64 + 0.5), rel=1e-3)
    assert seen.trainer_idle == pytest.approx(0.64 / 1.14, rel=1e-3)
    row = _compared(TRIAL, Seen(updates_per_second=1.0, trainer_idle=0.5, producers_idle=0.4), seen)
    assert row["throughput_difference"] == pytest.approx(seen.updates_per_second - 1, abs=1e-4)


def test_bars_are_drawn_to_scale() -> None:
    drawn = bars("speed", {"8 devices": [100.0, 50.0]}, ["a", "b"])
    filled = [line for line in drawn.splitlines() if "#1f6feb" in line or "#d9822b" in line]
    heights = [float(line.split('height="')[1].split('"')[0]) for line in filled]
    assert heights[2] == pytest.approx(2 * heights[3], abs=0.2)
    assert drawn == bars("speed", {"8 devices": [100.0, 50.0]}, ["a", "b"])
