"""EvaluationRunner over several producers: every prompt once, by one version, whatever dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_workers import evaluation_runner
from rlcore_plugin_workers.evaluation_runner import EvaluationRunner
from rlcore_plugin_workers.workers import WorkerDiedError

from rlcore.api import FinishReason, Message, Prompt, Rollout, RunError, Sampling, Score, Segment
from rlcore.api.runtime import Evaluator, GroupJob, ProducedGroup
from tests.driver_stage import DriverStage, driver_stage
from tests.worker_answers import Answer

PROMPTS = tuple(Prompt(prompt_id=f"q{index}", index=index, messages=(Message(role="user", content="?"),)) for index in range(5))


class Team:
    """Producers by name; ``asked`` are their shares and the answers to them, ``versions`` the oldest that may make each."""

    def __init__(self, *names: str) -> None:
        self.serving = list(names)
        self.asked: list[tuple[str, tuple[GroupJob, ...], Answer]] = []
        self.versions: list[int] = []

    def evaluate(self, actor: str, jobs: Sequence[GroupJob], version: int) -> Answer:
        self.versions.append(version)
        self.asked.append((actor, tuple(jobs), Answer()))
        return self.asked[-1][2]


def produced(job: GroupJob) -> ProducedGroup:
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[-0.1], versions=[0], policy_mask=[True])
    rollout = Rollout(prompt_id=job.prompt.prompt_id, index=0, segments=(segment,), text="x", finish=FinishReason.STOP)
    assert isinstance(segment.token_ids, np.ndarray)
    return ProducedGroup(job=job, rollouts=(rollout,), scores=(Score(value=1.0, accuracy=1.0),))


def answer(asked: tuple[str, tuple[GroupJob, ...], Answer], version: int) -> None:
    asked[2].give((version, [produced(job) for job in asked[1]]))


class Made:
    """EvaluationRunner of a pool, of which one is asked for at step 4; what was answered is heard when a call returns."""

    def __init__(self, stage: DriverStage, pool: Team) -> None:
        self.stage = stage
        self._made = stage.make(EvaluationRunner, Evaluator({"task": (PROMPTS, Sampling(), 1)}, 0), pool, stage.driver)
        self.start(4)

    def start(self, step: int) -> None:
        self.stage.run(self._made.start(step))
        self.stage.drain()

    def take(self, *, wait: bool) -> list[tuple[int, Any]]:
        self.stage.drain()
        return self.stage.run(self._made.take(wait=wait))


@pytest.fixture
def stage() -> Iterator[DriverStage]:
    with driver_stage() as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_runner, "_AGAIN_SECONDS", 0.01)


def rows(reports: list[tuple[int, Any]]) -> list[str]:
    ((_, (report,)),) = reports
    return [row["prompt_id"] for row in report.rows]


def test_the_prompts_are_dealt_and_come_back_in_their_order(stage: DriverStage) -> None:
    pool = Team("a", "b")
    made = Made(stage, pool)
    assert [len(jobs) for _, jobs, _ in pool.asked] == [3, 2]
    for asked in reversed(pool.asked):
        answer(asked, 4)
    reports = made.take(wait=True)
    assert reports[0][0] == 4
    assert rows(reports) == [prompt.prompt_id for prompt in PROMPTS]


def test_versions_that_differ_are_made_again_by_one_producer(stage: DriverStage) -> None:
    pool = Team("a", "b")
    made = Made(stage, pool)
    answer(pool.asked[0], 4)
    answer(pool.asked[1], 5)
    assert made.take(wait=False) == []
    ((actor, jobs, _),) = pool.asked[2:]
    assert (actor, len(jobs)) == ("a", 5)
    answer(pool.asked[2], 6)
    assert made.take(wait=True)[0][0] == 6


def test_a_death_has_all_of_it_made_again_by_those_who_live(stage: DriverStage) -> None:
    pool = Team("a", "b")
    made = Made(stage, pool)
    answer(pool.asked[0], 4)
    pool.asked[1][2].fail(WorkerDiedError("a", "the process of a died"))
    pool.serving = ["a"]
    stage.until(lambda: len(pool.asked) == 3)
    answer(pool.asked[2], 4)
    assert len(rows(made.take(wait=True))) == 5


def test_while_nobody_serves_it_waits_for_somebody(stage: DriverStage) -> None:
    pool = Team("a")
    made = Made(stage, pool)
    pool.serving = []
    pool.asked[0][2].fail(WorkerDiedError("a", "the process of a died"))
    stage.drain()
    assert len(pool.asked) == 1
    pool.serving = ["a.1"]
    stage.until(lambda: len(pool.asked) == 2)
    answer(pool.asked[1], 4)
    assert made.take(wait=True)


def test_any_other_error_ends_the_run(stage: DriverStage) -> None:
    pool = Team("a")
    made = Made(stage, pool)
    pool.asked[0][2].fail(RunError("the judge is gone"))
    with pytest.raises(RunError, match="judge is gone"):
        made.take(wait=True)


def test_evaluations_come_one_after_the_other(stage: DriverStage) -> None:
    pool = Team("a")
    made = Made(stage, pool)
    made.start(6)
    assert len(pool.asked) == 1
    answer(pool.asked[0], 4)
    made.take(wait=False)
    stage.until(lambda: len(pool.asked) == 2)
    answer(pool.asked[1], 6)
    assert [step for step, _ in made.take(wait=True)] == [6]


def test_a_version_is_evaluated_once_however_many_requests_it_answers(stage: DriverStage) -> None:
    """Training is ahead: what is asked for at step 4 is made by version 12, which step 12 asks for before the answer and after it."""
    pool = Team("a")
    made = Made(stage, pool)
    made.start(12)
    answer(pool.asked[0], 12)
    assert [step for step, _ in made.take(wait=False)] == [12]
    made.start(12)
    assert made.take(wait=False) == []
    assert len(pool.asked) == 1


@pytest.mark.parametrize(("made_by", "next_asked"), [(5, 6), (7, 9), (9, None)])
def test_an_evaluation_answers_every_request_up_to_its_version_and_no_later_one(
    stage: DriverStage, made_by: int, next_asked: int | None
) -> None:
    pool = Team("a")
    made = Made(stage, pool)
    for version in (6, 9):
        made.start(version)
    answer(pool.asked[0], made_by)
    assert [step for step, _ in made.take(wait=False)] == [made_by]
    assert pool.versions == ([4] if next_asked is None else [4, next_asked])


def test_a_request_is_answered_by_an_evaluation_of_newer_weights_that_came_first(stage: DriverStage) -> None:
    pool = Team("a")
    made = Made(stage, pool)
    answer(pool.asked[0], 12)
    made.take(wait=False)
    made.start(12)
    made.start(13)
    assert pool.versions == [4, 13]
