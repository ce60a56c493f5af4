"""Conformance suite for runtimes: it plays whole runs of fakes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlcore.config import Plan
from rlcore.contracts.resume_point import ResumePoint
from rlcore.contracts.runtime_interface import Interrupt, Runtime, Status, TaskReport, Update
from rlcore.contracts.specs import PluginKind
from rlcore.entry import make_plan
from rlcore.testing.policy import FakePolicy
from rlcore.testing.run_tester import RunTester

__all__ = ["PlayedRun", "RuntimeSuite"]

_LETTERS = "abcdef"
_EPISODES = 2
_BATCH = 3
_REFUSES = """
def refuses_a(item):
    if item.columns["gt_answer"] == "a":
        raise ValueError("no a")
    return float(item.text.strip() == item.columns["gt_answer"])
"""


@dataclass(kw_only=True)
class PlayedRun:
    """The answers of a runtime from its first call to its last."""

    folder: Path
    horizon: int = 0
    updates: list[Update] = field(default_factory=list)
    evaluations: list[tuple[int, list[TaskReport]]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    state: Mapping[str, Any] = field(default_factory=dict)
    status: Status | None = None
    seconds: float = 0.0

    @property
    def policy(self) -> FakePolicy:
        """The weights that were saved."""
        return FakePolicy.load(self.folder / "saved" / "model")

    @property
    def resume_point(self) -> ResumePoint:
        """Return the point from which a run of this length resumes."""
        assert self.status is not None
        return ResumePoint(run=self.folder, checkpoint=self.folder / "saved", step=self.status.version, state=self.state)

    @property
    def ledger(self) -> tuple[int, int, int]:
        """Prompts that were trained, filtered and failed."""
        assert self.status is not None
        return self.status.trained, self.status.filtered, self.status.failed


class RuntimeSuite:
    """The rules of a runtime, checked by whole runs of fakes.

    A subclass names the registered runtime in ``runtime``, and in ``settings`` all else that its runs need: ``{"run": {"ray_dir":
    "/tmp/r"}, "inference": {"num_inferencer": 2}}``. ``plugins`` adds distributions that offer it. Each test runs 12 prompts in batches of
    3, with backends in numpy; ``staleness`` is the highest ``max_staleness`` that is tested.
    """

    runtime = ""
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    staleness = 1
    patience = 30.0
    """Seconds within which all that the runtime started must have ended after its ExitStack is closed; no test that passes takes them."""
    _kept: ClassVar[dict[tuple[type, str], PlayedRun]] = {}

    def make(self, plan: Plan, closing: ExitStack, say: Callable[[str], None]) -> Runtime:
        """Return the runtime of a plan."""
        made: Runtime = plan.registry.make(PluginKind.RUNTIME, plan.config.run.runtime, plan, closing, say)
        return made

    def plugins(self, tester: RunTester) -> None:
        """Offer further plugins that the runs need: ``tester.plugins.install(…)``."""

    # --- how a run is played --------------------------------------------------------------------------------------------

    def play(
        self, folder: Path, *, runtime: str = "", until: int | None = None, after: PlayedRun | None = None, **sections: Mapping[str, Any]
    ) -> PlayedRun:
        """Make a run in ``folder``, from ``begin`` to the end of its ExitStack; ``sections`` override settings key by key. ``until``: the
        updates after which it is left. ``after``: an earlier part of the run, from which it resumes."""
        tester = RunTester(folder).with_fakes()
        self.plugins(tester)
        tester.write("refusing.py", _REFUSES)
        config: dict[str, Mapping[str, Any]] = {name: dict(values) for name, values in sections.items()}
        if not runtime:
            for name, values in self.settings.items():
                config[name] = {**values, **config.get(name, {})}
        given = {"runtime": runtime or self.runtime, "num_episodes": _EPISODES, "max_steps": len(_LETTERS) * _EPISODES // _BATCH}
        config["run"] = {**given, **config.get("run", {})}
        config["training"] = {"train_batch_size": _BATCH, **config.get("training", {})}
        rewards = config.pop("rewards", None)
        with chdir(folder), tester.plugins:
            plan = make_plan(tester.fake_run(**config), reward=rewards["name"] if rewards else None)
            plan = replace(plan, resume=None if after is None else after.resume_point)
            with ExitStack() as closing:
                return self._drive(self.make(plan, closing, lambda line: None), folder, evaluates="eval" in config, until=until)

    def _drive(self, runtime: Runtime, folder: Path, *, evaluates: bool, until: int | None) -> PlayedRun:
        """Drive it as the loop of a run does: ask for an evaluation only if there is a held-out task."""
        played, interrupt = PlayedRun(folder=folder, horizon=runtime.horizon), Interrupt()
        runtime.begin(folder, interrupt)
        if evaluates:
            runtime.evaluate(0)
            played.evaluations += runtime.take_evaluations(wait=True)
        runtime.start_clock()
        while len(played.updates) != until and runtime.next_batch():
            played.updates.append(runtime.train(log_rollouts=not played.updates))
            played.failures += runtime.take_failures()
        played.seconds = runtime.timing().seconds
        played.failures += runtime.take_failures()
        if evaluates:
            runtime.evaluate(len(played.updates))
            played.evaluations += runtime.take_evaluations(wait=True)
        played.state, played.status = runtime.state(), runtime.status()
        runtime.stop()
        (folder / "saved").mkdir()
        if (saving := runtime.save(folder / "saved")) is not None:
            saving.result()
        played.faults = runtime.take_reward_faults(last=True)
        return played

    def _evaluated(self, folder: Path) -> PlayedRun:
        """Return a run at staleness 0 with a held-out task, played once for all tests of the class."""
        key = (type(self), "evaluated")
        if key not in self._kept:
            self._kept[key] = self.play(folder, eval=self._held_out(folder))
        return self._kept[key]

    @staticmethod
    def _held_out(folder: Path) -> dict[str, Any]:
        return {"eval_dataset": {"letters": str(RunTester(folder).fake_data("held.jsonl", "abcd"))}, "eval_temperature": 0.0}

    # --- the tests ------------------------------------------------------------------------------------------------------

    def test_it_makes_the_updates_that_it_planned(self, tmp_path: Path) -> None:
        """Versions count from 1 to the horizon, and the schedule is then finished."""
        played = self._evaluated(tmp_path)
        planned = len(_LETTERS) * _EPISODES // _BATCH
        assert played.horizon == planned, f"horizon is {played.horizon}; the prompts make {planned} updates"
        versions = [update.version for update in played.updates]
        assert versions == list(range(1, planned + 1)), f"updates made the versions {versions}"
        assert played.status is not None
        assert played.status.finished, "the schedule is not finished at the end of the run"
        assert played.status.version == planned

    def test_every_prompt_is_accounted_for_once(self, tmp_path: Path) -> None:
        """Trained, filtered and failed prompts add up to all prompts, nothing is left in flight, and the state fits into JSON."""
        played = self._evaluated(tmp_path)
        assert sum(played.ledger) == len(_LETTERS) * _EPISODES, f"trained, filtered, failed: {played.ledger}"
        assert played.status is not None
        assert (played.status.in_flight, played.status.buffered, played.status.taken) == (0, 0, 0)
        assert json.loads(json.dumps(played.state)) == played.state, "state() must be what JSON can hold"

    def test_on_policy_it_trains_the_weights_of_one_process(self, tmp_path: Path) -> None:
        """At staleness 0, weights, and reward, length and staleness of each update, are those of one process, to the bit."""
        here, alone = self._evaluated(tmp_path / "here"), self.play(tmp_path / "alone", runtime="in_process")
        for name, array in alone.policy.arrays().items():
            assert np.array_equal(here.policy.arrays()[name], array), f"the weights {name} differ from those of one process"
        for ours, theirs in zip(here.updates, alone.updates, strict=True):
            for figure in ("reward/mean", "response_tokens", "staleness/max"):
                assert ours.figures[figure] == theirs.figures[figure], f"{figure} of version {ours.version} differs from one process"

    def test_a_run_that_goes_on_is_the_run_that_was_not_left(self, tmp_path: Path) -> None:
        """At staleness 0, a resumed run has weights, rewards, lengths, rates and ledger of an uninterrupted run, to the bit."""
        whole, half = self._evaluated(tmp_path / "whole"), self.play(tmp_path / "half", until=2)
        rest = self.play(tmp_path / "rest", after=half)
        versions = [update.version for update in rest.updates]
        assert versions == list(range(3, whole.horizon + 1)), f"a run that was left at version 2 continues with the versions {versions}"
        for ours, theirs in zip(rest.updates, whole.updates[2:], strict=True):
            for figure in ("reward/mean", "response_tokens", "learning_rate"):
                assert ours.figures[figure] == theirs.figures[figure], f"{figure} of version {ours.version} differs from the whole run's"
        for name, array in whole.policy.arrays().items():
            assert np.array_equal(rest.policy.arrays()[name], array), f"the weights {name} differ from those of the run that was not left"
        assert rest.ledger == whole.ledger, f"trained, filtered, failed: {rest.ledger}; of the run that was not left: {whole.ledger}"
        assert json.loads(json.dumps(rest.state)) == whole.state, "state() differs from that of the run that was not left"

    def test_no_group_is_older_than_allowed(self, tmp_path: Path) -> None:
        """At a staleness above 0, no update trains a group older than allowed, and each update is made."""
        played = self.play(tmp_path, schedule={"max_staleness": self.staleness})
        ages = [update.figures["staleness/max"] for update in played.updates]
        assert max(ages) <= self.staleness, f"groups are up to {max(ages):g} versions old, {self.staleness} is allowed"
        assert [update.version for update in played.updates] == list(range(1, played.horizon + 1))

    def test_evaluations_are_delivered(self, tmp_path: Path) -> None:
        """The first and the last weights are evaluated, each on every row of the task."""
        played = self._evaluated(tmp_path)
        assert [step for step, _ in played.evaluations] == [0, played.horizon], f"steps: {[step for step, _ in played.evaluations]}"
        for step, reports in played.evaluations:
            assert [(report.task, len(report.rows)) for report in reports] == [("letters", 4)], f"the evaluation of step {step}"

    def test_an_update_says_what_it_trained_and_how_long_it_took(self, tmp_path: Path) -> None:
        """An update returns rows of the rollout log if asked for, and always its metrics and seconds."""
        played = self._evaluated(tmp_path)
        first, *others = played.updates
        assert len(first.rollouts) == _BATCH * 8, f"{len(first.rollouts)} rows of the rollout log, {_BATCH} groups of 8 were trained"
        assert not any(update.rollouts for update in others), "rows of the rollout log that nobody asked for"
        assert all(update.figures["response_tokens"] > 0 for update in played.updates)
        assert played.seconds > 0

    def test_a_prompt_that_fails_is_told_with_its_reason(self, tmp_path: Path) -> None:
        """If a reward raises for a prompt, the prompt counts as failed once an episode, with the traceback as its reason."""
        played = self.play(tmp_path, rewards={"name": "./refusing.py:refuses_a"}, schedule={"reward_error_budget": 1.0})
        assert played.ledger[2] == _EPISODES, f"{played.ledger[2]} prompts counted as failed; one failed in each of {_EPISODES} episodes"
        assert len(played.failures) == _EPISODES, f"take_failures told {len(played.failures)}"
        assert all("ValueError: no a" in failure["reason"] for failure in played.failures), played.failures
        assert played.faults, "take_reward_faults told nothing of a reward that raised"

    def test_everything_has_ended_when_the_stack_is_closed(self, tmp_path: Path) -> None:
        """When the exit stack is closed, no process and no thread that would keep the process alive remains."""
        self.play(tmp_path / "first", run={"max_steps": 1})  # what a library starts once and keeps is none of the runtime's
        threads, children = _threads(), _children()
        self.play(tmp_path / "second", run={"max_steps": 1})
        deadline = time.monotonic() + self.patience
        while (left := (_threads() - threads) | (_children() - children)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, f"left after the run: {', '.join(sorted(left))}"


def _threads() -> set[str]:
    return {f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate() if not thread.daemon}


def _children() -> set[str]:
    """Return the child processes that run (Linux): ``process 12 (python)``."""
    found = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        try:
            numbers = listed.read_text().split()
        except OSError:  # that thread has ended
            continue
        for number in numbers:
            try:
                name, state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[0::2]
            except OSError:  # that process has ended
                continue
            if state.split()[0] != "Z":
                found.add(f"process {number} ({name.partition('(')[2]})")
    return found
