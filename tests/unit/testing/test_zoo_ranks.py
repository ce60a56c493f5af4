"""The suite catches planted bugs of steps and of ranks: each by the rule that is meant for it, and by no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any
from unittest import mock

import pytest
from suites_of_fakes import FakeTrainerSuite
from zoo_ranks import RANK_ZOO
from zoo_steps import STEP_ZOO

from rlcore.testing import FakeTraining, TrainingLayoutSuite
from rlcore.testing.training import layout_runs, layout_sessions
from rlcore.testing.training.optimizer_rules import OptimizerRules
from rlcore.testing.training.rank_processes import free_rendezvous

RULES = [name for name in vars(TrainingLayoutSuite) if name.startswith("test_")]
SINGLE = [name for name in dir(FakeTrainerSuite) if name.startswith("test_") and name not in RULES]
ALSO = {
    "DropsLastMicroBatch": "each_rollout_trains_at_its_own_temperature",
    "ForgetsRandomState": "a_save_is_of_the_moment_that_it_began sleeps_and_wakes nothing_in_the_loss_is_no_step "
    "a_gradient_that_is_not_finite_is_skipped order_of_rollouts_does_not_matter gradient_does_not_depend_on_the_cut "
    "the_rate_follows_the_schedule moments_follow_the_betas gradients_are_clipped_by_their_global_norm",
    "TellsTheScheduleAlone": "matrices_decay_and_vectors_do_not",
    "CorrectsNoBias": "moments_follow_the_betas gradients_are_clipped_by_their_global_norm grad_norm_is_the_length_of_the_whole_gradient",
    "FreezesATable": "grad_norm_is_the_length_of_the_whole_gradient",
    "KeepsItsShare": "skip_alike load_elsewhere continue_exactly report_the_whole_step",
    "EmptyShareStepsOnNothing": "skip_alike continue_exactly",
    "ClipsEachShare": "skip_alike load_elsewhere report_the_whole_step",
    "SkipsAlone": "load_elsewhere",
    "DriftsElsewhere": "skip_alike load_elsewhere",
    "LeavesHeadUngathered": "skip_alike load_elsewhere save_whole continue_exactly",
    "SavesHeadUngathered": "load_elsewhere continue_exactly",
    "HandsOutAnother": "train_like_one_process continue_exactly",
}
"""Rules that such a bug cannot but fail too: wrong weights stay wrong."""


def said(suite: type[FakeTrainerSuite], rule: str) -> str:
    """What a rule complains of."""
    try:
        getattr(suite(), rule)()
    except AssertionError as error:
        return str(error) or "nothing"
    return ""


@pytest.mark.parametrize("bug", STEP_ZOO, ids=lambda bug: bug.__name__)
def test_a_bug_of_steps_fails_the_rule_that_is_meant_for_it(bug: type[FakeTraining]) -> None:
    rule, words = STEP_ZOO[bug]
    suite = type(f"{bug.__name__}Suite", (FakeTrainerSuite,), {"trainer": bug})
    found = {name: message for name in SINGLE if (message := said(suite, name))}
    assert {rule} <= set(found) <= {rule, *(f"test_{name}" for name in ALSO.get(bug.__name__, "").split())}, found
    assert re.search(words, found[rule])


@pytest.fixture
def ranks_in_threads() -> Iterator[None]:
    """The fake's ranks share nothing but sockets, and threads start in no time. ``test_fakes_conform`` runs in processes."""

    def run(function: str, size: int, *arguments: Any, timeout: float) -> list[Any]:
        assert function == f"{layout_runs.__name__}:run_layouts"
        rendezvous = free_rendezvous()
        with ThreadPoolExecutor(size) as threads:
            return list(threads.map(lambda rank: layout_runs.run_layouts(rank, size, rendezvous, *arguments), range(size), timeout=timeout))

    lock, parse = Lock(), ast.literal_eval

    def literal_eval(text: Any) -> Any:
        with lock:
            return parse(text)

    # numpy reads the header of a file by it, and Python 3.11 counts its depth for all threads together
    with mock.patch.object(layout_sessions, "run_ranks", run), mock.patch.object(ast, "literal_eval", literal_eval):
        yield


@pytest.mark.full
@pytest.mark.usefixtures("ranks_in_threads")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of the NaN that a rule plants
@pytest.mark.parametrize("bug", RANK_ZOO, ids=lambda bug: bug.__name__)
def test_a_bug_of_ranks_fails_the_rule_that_is_meant_for_it(bug: type[FakeTraining]) -> None:
    rule, words = RANK_ZOO[bug]
    suite = type(f"{bug.__name__}Suite", (FakeTrainerSuite,), {"trainer": bug, "rank_counts": (2,)})
    found = {name.removeprefix("test_layouts_"): message for name in RULES if (message := said(suite, name))}
    assert rule in found, found
    assert re.search(words, found[rule]), found
    assert set(found) <= {rule, *ALSO.get(bug.__name__, "").split()}, found


def test_every_rule_of_layouts_has_a_bug_that_it_is_meant_for() -> None:
    assert {f"test_layouts_{rule}" for rule, _ in RANK_ZOO.values()} == set(RULES)


def test_every_rule_of_the_optimizer_has_a_bug_that_it_is_meant_for() -> None:
    assert {name for name in vars(OptimizerRules) if name.startswith("test_")} <= {rule for rule, _ in STEP_ZOO.values()}
