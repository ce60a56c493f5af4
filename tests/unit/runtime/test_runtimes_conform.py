"""The runtime in_process keeps what every runtime promises, and a crew with one fault does not pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rlcore.config import Plan
from rlcore.contracts.runtime_interface import TaskReport, Update
from rlcore.runtime.one_process import OneProcess
from rlcore.testing import RuntimeSuite


class TestInProcessRuntime(RuntimeSuite):
    runtime = "in_process"
    staleness = 0


class TwiceCounted(OneProcess):
    """Its versions count by two."""

    def train(self, *, log_rollouts: bool) -> Update:
        update = super().train(log_rollouts=log_rollouts)
        return replace(update, version=update.version * 2)


class Deaf(OneProcess):
    """It loses evaluations, failures and what rewards raised."""

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        return []

    def take_failures(self) -> list[dict[str, Any]]:
        return []


class Impatient(OneProcess):
    """It ends one update early."""

    def next_batch(self) -> bool:
        return super().next_batch() and self.status().version + 1 < self.horizon


class OtherSeed(OneProcess):
    """It generates with another seed than it was told."""

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        config = plan.config.model_copy(update={"run": plan.config.run.model_copy(update={"seed": 7})})
        super().__init__(replace(plan, config=config), closing, say)


class Stale(OneProcess):
    """It says of its groups that they are older than is allowed."""

    def train(self, *, log_rollouts: bool) -> Update:
        update = super().train(log_rollouts=log_rollouts)
        return replace(update, figures={**update.figures, "staleness/max": 3.0}, rollouts=())


class Forgetful(OneProcess):
    """It begins at the beginning, whatever the plan says."""

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        super().__init__(replace(plan, resume=None), closing, say)


class Lingering(OneProcess):
    """It leaves a thread behind."""

    ends: ClassVar[list[threading.Event]] = []

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        super().__init__(plan, closing, say)
        self.ends.append(threading.Event())
        threading.Thread(target=self.ends[-1].wait, name="left behind").start()


FAULTS: Mapping[type[OneProcess], Mapping[str, str]] = {
    TwiceCounted: {"it_makes_the_updates_that_it_planned": "updates made the versions"},
    Deaf: {"evaluations_are_delivered": "steps:", "a_prompt_that_fails_is_told_with_its_reason": "take_failures told 0"},
    Impatient: {
        "it_makes_the_updates_that_it_planned": "updates made the versions",
        "every_prompt_is_accounted_for_once": "trained, filtered",
    },
    OtherSeed: {"on_policy_it_trains_the_weights_of_one_process": "differ"},
    Stale: {
        "no_group_is_older_than_allowed": "groups are up to 3 versions old",
        "an_update_says_what_it_trained_and_how_long_it_took": "0 rows of the rollout log",
    },
    Forgetful: {"a_run_that_goes_on_is_the_run_that_was_not_left": r"continues with the versions \[1, 2, 3, 4\]"},
    Lingering: {"everything_has_ended_when_the_stack_is_closed": "thread left behind"},
}


@pytest.mark.parametrize(
    ("crew", "test", "said"),
    [(crew, test, said) for crew, tests in FAULTS.items() for test, said in tests.items()],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_crew_with_a_fault_fails(crew: type[OneProcess], test: str, said: str, tmp_path: Path) -> None:
    class Broken(RuntimeSuite):
        runtime = "in_process"
        staleness = 0
        patience = 0.2
        faulty = True

        def make(self, plan: Plan, closing: ExitStack, say: Callable[[str], None]) -> OneProcess:
            return crew(plan, closing, say) if self.faulty else OneProcess(plan, closing, say)

        def play(self, folder: Path, *, runtime: str = "", **sections: Mapping[str, Any]) -> Any:
            self.faulty = not runtime  # the run to compare with is a good one
            return super().play(folder, runtime=runtime, **sections)

    try:
        with pytest.raises(AssertionError, match=said):
            getattr(Broken(), f"test_{test}")(tmp_path)
    finally:
        for end in Lingering.ends:
            end.set()
