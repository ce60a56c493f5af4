"""The shipped controllers under the kit, against decisions computed by hand, and in runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rlcore_plugin_tools.control.adaptive_kl import AdaptiveKl, AdaptiveKlOptions
from rlcore_plugin_tools.control.early_stopping import EarlyStopping, EarlyStoppingOptions
from rlcore_plugin_tools.control.plateau import Plateau, PlateauOptions
from rlcore_plugin_tools.control.watched_figure import FigureOptions

from rlcore.api import Controller, Decision
from rlcore.testing import ControllerSuite, RunTester


class TestEarlyStopping(ControllerSuite):
    def make(self) -> Controller:
        return EarlyStopping(EarlyStoppingOptions(patience=3))


class TestEarlyStoppingByEvaluations(ControllerSuite):
    def make(self) -> Controller:
        return EarlyStopping(EarlyStoppingOptions(figure="eval/heldout", patience=1))


class TestAdaptiveKl(ControllerSuite):
    def make(self) -> Controller:
        return AdaptiveKl(AdaptiveKlOptions())


class TestPlateau(ControllerSuite):
    def make(self) -> Controller:
        return Plateau(PlateauOptions(patience=2))


def decisions(controller: Controller, figure: str, values: Sequence[float]) -> list[Decision | None]:
    return [controller.step_finished(step, {figure: value}) for step, value in enumerate(values, start=1)]


def stops(values: Sequence[float], **options: object) -> list[int]:
    controller = EarlyStopping(EarlyStoppingOptions.model_validate({"figure": "f", **options}))
    return [step for step, decision in enumerate(decisions(controller, "f", values), start=1) if decision and decision.stop]


def test_early_stopping_counts_the_values_since_the_best() -> None:
    assert stops([1, 2, 2, 1, 3, 3, 3, 3], patience=3) == [8]
    assert stops([1, 2, 2, 1, 3, 3, 3, 3], patience=2)[0] == 4
    assert stops([3, 2, 1, 1, 1], patience=2, better="lower") == [5]
    assert stops([1, 1.05, 1.1, 1.15], patience=3, min_delta=0.2) == [4]


def test_the_coefficient_follows_the_rule_of_the_paper() -> None:
    """By hand: 0.1 * 0.2 = 2 percent at most, and 0.1 * 0.1 for a KL that is a tenth too high."""
    made = AdaptiveKl(AdaptiveKlOptions(initial=1.0, target=0.1))
    given = [decision.set["algorithm.kl_coeff"] for decision in decisions(made, "kl_reference", [0.5, 0.11, 0.0]) if decision]
    assert given == pytest.approx([1.02, 1.02 * 1.01, 1.02 * 1.01 * 0.98])


def test_a_plateau_halves_the_rate_and_counts_anew() -> None:
    made = Plateau(PlateauOptions(figure="f", patience=2, lowest=0.2))
    scales = [decision.set["training.learning_rate"] for decision in decisions(made, "f", [1, 1, 1, 1, 1, 1, 1, 1, 2]) if decision]
    assert scales == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]


def test_a_figure_that_the_run_has_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="the run has no figure 'kl_reference'; it has f"):
        decisions(AdaptiveKl(AdaptiveKlOptions()), "f", [1.0])
    with pytest.raises(ValueError, match="the run has no figure 'reward/mean'; it has f"):
        decisions(EarlyStopping(EarlyStoppingOptions()), "f", [1.0])
    with pytest.raises(ValueError, match="the run has no figure 'reward/men'; it has f"):
        decisions(Plateau(PlateauOptions(figure="reward/men")), "f", [1.0])
    with pytest.raises(ValueError, match="the run has no figure 'eval/y'; it has eval/x"):
        Plateau(PlateauOptions(figure="eval/y")).evaluated(0, {"eval/x": 1.0})
    with pytest.raises(ValueError, match="no evaluation with eval/x before update 1; give the run --eval-dataset"):
        decisions(EarlyStopping(EarlyStoppingOptions(figure="eval/x")), "f", [1.0])
    assert FigureOptions().figure == "reward/mean"


def test_a_task_that_the_run_has_not_is_refused_at_the_plan(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    words = ("--controllers", "early_stopping", "--figure", "eval/letters")
    said = "run.controller_options.early_stopping.figure = eval/letters: the run has no such task; it has no held-out task"
    tester.run("train", tester.fake_run(), *words, "--dry-run").assert_refused(said)


@pytest.mark.parametrize(
    "words", [("adaptive_kl", "-kl", "0.1", "--figure", "loss"), ("early_stopping", "--figure", "loss"), ("plateau", "--figure", "loss")]
)
def test_an_update_whose_groups_were_all_filtered_does_not_end_a_run(tmp_path: Path, words: Sequence[str]) -> None:
    """It has no loss and no KL, because it took no optimizer step."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run(run={"num_episodes": 50, "max_steps": 8}, algorithm={"name": "fake", "filter_range": [0.2, 1.1]})
    done = tester.run("train", config, "--controllers", *words, "--json").assert_ok()
    rows = [json.loads(line) for line in (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()]
    assert {"loss" in row for row in rows if "seconds" in row} == {True, False}


def test_a_run_stops_early_and_another_keeps_its_kl(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    held = {"eval": {"eval_dataset": {"letters": str(tester.fake_data("held.jsonl", "abcd"))}, "eval_interval": 1}}
    config = tester.fake_run(run={"num_episodes": 50, "max_steps": 30}, **held)
    words = ("--controllers", "early_stopping", "--figure", "eval/letters", "--patience", "2", "--min-delta", "1")
    stopped = tester.run("train", config, *words, "--json").assert_ok()
    assert stopped.json["stopped"] == "early_stopping: eval/letters has not improved in 2 evaluations"
    assert stopped.json["steps"] == 3  # evaluations of 0, 1 and 2; that of 2 is seen after update 3
    steady = tester.run(
        "train", config, "--controllers", "adaptive_kl", "-kl", "0.02", "--figure", "entropy/sampled", "--max-steps", "4", "--json"
    ).assert_ok()
    rows = [json.loads(line) for line in (tester.folder / steady.json["run"] / "metrics.jsonl").read_text().splitlines()]
    told = [row["control/algorithm.kl_coeff"] for row in rows if "loss" in row]
    assert told == pytest.approx([0.01 * 1.02**step for step in range(1, 5)])  # it is far above 0.05
