"""The producer with the fake engine: every job comes back whole, under the weights it was told to serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import Probe, Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Message, Outcome, Prompt, Rollout, RolloutKind, Sampling, Score
from rlcore.roles.evaluator import Evaluator, HeldOut
from rlcore.roles.producer import GroupJob, ProducedGroup, Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeInference, FakeInferenceOptions, FakePolicy, FakeTokenizer, write_fake_model


class LengthJudge:
    """Judges in the next poll: the value is the number of characters."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, tuple[Score, ...]]] = []
        self.counted: dict[int, bool] = {}

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        self.counted[key] = counted
        scores = tuple(Score(value=float(len(r.text)), accuracy=float(len(r.text) % 2), outcome=Outcome.OK) for r in rollouts)
        self._waiting.append((key, scores))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        waiting, self._waiting = self._waiting, []
        return waiting


def producer(tmp_path: Path, *, in_flight: InFlight = InFlight.RESUME, steps_per_poll: int = 4, continues: bool = False) -> Producer:
    model = write_fake_model(tmp_path / "model")
    context = InferenceContext(model=str(model), tokenizer=FakeTokenizer(), prompts_per_forward=2, max_tokens=64)
    engine = FakeInference(context, FakeInferenceOptions(in_flight=in_flight, steps_per_poll=steps_per_poll, continues=continues))
    return Producer("p0", engine, FakeTokenizer(), LengthJudge(), TimeAccount(), SingleTurn())


def job(key: int, n: int = 3, **sampling: float) -> GroupJob:
    prompt = Prompt(prompt_id=f"q{key}", index=key, messages=(Message(role="user", content=f"say {key}"),))
    return GroupJob(key=key, prompt=prompt, samplings=(Sampling(max_new_tokens=12, **sampling),) * n, noise=(0, 0, key))  # type: ignore[arg-type]


def drain(made: Producer) -> dict[int, ProducedGroup]:
    results: list[ProducedGroup] = []
    while not made.idle:
        results += made.step(0.01)
    return {result.job.key: result for result in results}


def snapshot(version: int, seed: int, tokenizer: FakeTokenizer) -> Snapshot:
    policy = FakePolicy.random(len(tokenizer), seed)
    ids = np.array([5, 6, 7], np.int32)
    probe = Probe(token_ids=ids, logprobs=policy.logprobs(ids).astype(np.float32), tolerance=1e-4)
    return Snapshot.of(version, dict(policy.tensors()), probe)


def test_every_job_comes_back_once_with_its_rollouts_in_order(tmp_path: Path) -> None:
    made = producer(tmp_path)
    made.accept([job(key) for key in range(5)])
    assert made.busy == 5
    results = drain(made)
    assert sorted(results) == list(range(5))
    for key, result in results.items():
        assert [rollout.index for rollout in result.rollouts] == [0, 1, 2]
        assert [score.value for score in result.scores] == [len(rollout.text) for rollout in result.rollouts]
        assert all(rollout.prompt_id == f"q{key}" for rollout in result.rollouts)
    assert made.busy == 0


def test_what_is_drawn_depends_neither_on_company_nor_on_pace(tmp_path: Path) -> None:
    together, alone = producer(tmp_path / "a"), producer(tmp_path / "b", steps_per_poll=1)
    together.accept([job(key) for key in range(4)])
    texts = {key: [rollout.text for rollout in result.rollouts] for key, result in drain(together).items()}
    for key in (3, 0, 2, 1):
        alone.accept([job(key)])
        assert [rollout.text for rollout in drain(alone)[key].rollouts] == texts[key]


def test_a_rollout_carries_the_temperature_that_it_was_sampled_at(tmp_path: Path) -> None:
    made = producer(tmp_path)
    one = job(0, n=3, temperature=0.7)
    made.accept([replace(one, samplings=(*one.samplings[:2], replace(one.samplings[2], temperature=0.0))), job(1, temperature=1.3)])
    results = drain(made)
    assert [rollout.temperature for rollout in results[0].rollouts] == [0.7, 0.7, 0.0]
    assert {rollout.temperature for rollout in results[1].rollouts} == {1.3}


def test_greedy_rollouts_are_marked_and_equal(tmp_path: Path) -> None:
    made = producer(tmp_path)
    made.accept([job(0, n=2, temperature=0.0)])
    rollouts = drain(made)[0].rollouts
    assert {rollout.kind for rollout in rollouts} == {RolloutKind.GREEDY}
    assert rollouts[0].text == rollouts[1].text


def test_new_weights_are_taken_with_requests_in_flight_and_recorded_per_token(tmp_path: Path) -> None:
    made = producer(tmp_path, steps_per_poll=2)
    made.load(snapshot(3, 1, FakeTokenizer()))
    made.accept([job(0, n=4)])
    made.step(0.0)
    made.load(snapshot(4, 2, FakeTokenizer()))
    rollouts = drain(made)[0].rollouts
    assert made.version == 4
    longest = max(rollouts, key=lambda rollout: rollout.length)
    assert set(longest.segments[0].versions) == {3, 4}
    assert longest.version == 3


def test_requests_that_an_update_aborts_are_asked_again_under_the_new_weights(tmp_path: Path) -> None:
    made = producer(tmp_path, in_flight=InFlight.ABORT, steps_per_poll=1)
    made.load(snapshot(3, 1, FakeTokenizer()))
    made.accept([job(0, n=4)])
    made.step(0.0)
    made.load(snapshot(4, 2, FakeTokenizer()))
    rollouts = drain(made)[0].rollouts
    assert len(rollouts) == 4
    assert any(set(rollout.segments[0].versions.tolist()) == {4} for rollout in rollouts)


def test_a_continued_answer_is_the_uninterrupted_one_under_equal_weights(tmp_path: Path) -> None:
    def made(**options: Any) -> Producer:
        one = producer(tmp_path, in_flight=InFlight.ABORT, steps_per_poll=1, **options)
        one.load(snapshot(0, 1, FakeTokenizer()))
        one.accept([job(0, n=4)])
        return one

    whole = drain(made())[0].rollouts
    asked: list[int] = []
    cut = made(continues=True)
    submit = cut._engine.submit
    cut._engine.submit = lambda requests: (asked.extend(one.continued for one in requests), submit(requests))[1]  # type: ignore[method-assign]
    version, produced = 0, []
    while not produced:
        for _ in range(4):
            produced += cut.step(0.0)
        cut.load(snapshot(version := version + 1, 1, FakeTokenizer()))
    continued = produced[0].rollouts
    longest = max(continued, key=lambda rollout: rollout.length).segments[0]
    assert len(set(longest.versions.tolist())) > 2
    assert (np.diff(longest.versions) >= 0).all()
    assert max(asked) > 1
    for one, other in zip(continued, whole, strict=True):
        assert np.array_equal(one.segments[0].token_ids, other.segments[0].token_ids)
        np.testing.assert_allclose(one.segments[0].logprobs, other.segments[0].logprobs, rtol=1e-6)
        assert (one.text, one.finish) == (other.text, other.finish)
        assert len(one.segments[0].context_ids) == len(other.segments[0].context_ids)


def test_an_engine_that_does_not_continue_begins_anew(tmp_path: Path) -> None:
    made = producer(tmp_path, in_flight=InFlight.ABORT, steps_per_poll=1)
    made.load(snapshot(0, 1, FakeTokenizer()))
    made.accept([job(0, n=4)])
    made.step(0.0)
    made.load(snapshot(1, 1, FakeTokenizer()))
    for rollout in drain(made)[0].rollouts:
        assert len(set(rollout.segments[0].versions.tolist())) == 1


def test_an_engine_that_serves_other_weights_is_found_by_the_probe(tmp_path: Path) -> None:
    made = producer(tmp_path)
    other = snapshot(2, seed=9, tokenizer=FakeTokenizer())
    wrong = replace(snapshot(2, seed=1, tokenizer=FakeTokenizer()), probe=other.probe)
    with pytest.raises(WeightsError, match="p0 does not serve version 2"):
        made.load(wrong)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda completion: None, "the inference backend Odd of producer p0 failed while generating: .* returned a NoneType among"),
        (
            lambda completion: replace(completion, finish="banana"),
            "Odd of producer p0 returned finish 'banana', which is not one of 'stop', ",
        ),
    ],
)
def test_what_is_no_completion_is_blamed_on_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any], Any], sentence: str
) -> None:
    class Odd(FakeInference):
        def poll(self, timeout: float) -> list[Any]:
            return [answer(completion) for completion in super().poll(timeout)]

    made = producer(tmp_path)
    made._engine.__class__ = Odd
    made.accept([job(0)])
    with pytest.raises(RunError, match=sentence):
        drain(made)


def test_an_evaluation_reports_every_row_in_its_order_and_leaves_other_results_alone(tmp_path: Path) -> None:
    made = producer(tmp_path)
    prompts = tuple(job(index).prompt for index in range(3))
    evaluation = Evaluator({"task": HeldOut(prompts, Sampling(temperature=0.0, max_new_tokens=8))}, seed=0).start(-1)
    made.accept([*evaluation.jobs, job(7)])
    results = drain(made)
    assert isinstance(made._judge, LengthJudge)
    assert made._judge.counted == {-1: False, -2: False, -3: False, 7: True}, "an evaluation spends no budget of the training"
    (report,) = evaluation.reports(reversed(results.values()))
    assert [row["prompt_id"] for row in report.rows] == ["q0", "q1", "q2"]
    assert report.accuracy == sum(row["ans_valid"] for row in report.rows) / 3
    assert report.failed == 0


def test_an_evaluation_of_several_completions_a_prompt(tmp_path: Path) -> None:
    """By hand: three prompts, four completions; right 2 of 4 (answers 7 7 8 9, 7 is right), 0 of 4 (none parsed), 1 of 3 and a failure."""
    made = producer(tmp_path)
    prompts = tuple(job(index).prompt for index in range(3))
    evaluation = Evaluator({"task": HeldOut(prompts, Sampling(max_new_tokens=8), 4)}, seed=0).start(-1)
    made.accept(evaluation.jobs)
    results = sorted(drain(made).values(), key=lambda produced: produced.job.prompt.prompt_id)
    verdicts = [
        [(1.0, "7"), (1.0, "7"), (0.0, "8"), (0.0, "9")],
        [(0.0, None)] * 4,
        [(1.0, "3"), (0.0, "4"), (0.0, "5")],
    ]
    scores = [tuple(Score(value=2 * right, accuracy=right, parsed=answer) for right, answer in of_prompt) for of_prompt in verdicts]
    scores[2] = (*scores[2], Score.failed(Outcome.TIMEOUT, "late"))
    (report,) = evaluation.reports([replace(one, scores=of_prompt) for one, of_prompt in zip(results, scores, strict=True)])
    figures = report.figures()
    assert (len(report.rows), report.failed, figures["eval/task/failed"]) == (12, 1, 1.0)
    assert [row["index"] for row in report.rows] == [0, 1, 2, 3] * 3
    assert len({row["prediction"] for row in report.rows[:4]}) > 1, "each completion is drawn for itself"
    assert figures["eval/task"] == pytest.approx((2 / 4 + 0 + 1 / 3) / 3)
    assert figures["eval/task/reward"] == pytest.approx(6 / 11)
    # pass@2: 1 - C(2,2)/C(4,2) = 5/6, 0, 1 - C(2,2)/C(3,2) = 2/3; pass@4: 1 and 0, for the third prompt has three verdicts
    assert figures["eval/task/pass@2"] == pytest.approx((5 / 6 + 0 + 2 / 3) / 3)
    assert figures["eval/task/pass@4"] == pytest.approx(0.5)
    # maj@4: 7 wins; maj@2 of 7 7 8 9: both 7 in 1 of 6 pairs, a tie with one 7 in 4 of 6; of 3 4 5: a tie with 3 in 2 of 3 pairs
    assert figures["eval/task/maj@4"] == pytest.approx(0.5)
    assert figures["eval/task/maj@2"] == pytest.approx((1 / 6 + 4 / 6 / 2 + 0 + 2 / 3 / 2) / 3)
    # an environment says no answers, so there is no vote
    silent = [tuple(replace(score, parsed=None) for score in of_prompt) for of_prompt in scores]
    (report,) = evaluation.reports([replace(one, scores=of_prompt) for one, of_prompt in zip(results, silent, strict=True)])
    assert report.figures() == {name: value for name, value in figures.items() if "maj@" not in name}
    assert figures["eval/task/low"] < figures["eval/task"] < figures["eval/task/high"]


def test_an_evaluation_says_how_many_it_has_no_verdict_on(tmp_path: Path) -> None:
    made = producer(tmp_path)
    prompts = tuple(job(index).prompt for index in range(3))
    evaluation = Evaluator({"task": HeldOut(prompts, Sampling(temperature=0.0, max_new_tokens=8))}, seed=0).start(-1)
    made.accept(evaluation.jobs)
    results = list(drain(made).values())
    results[1] = replace(results[1], scores=(Score.failed(Outcome.TIMEOUT, "late"),))
    (report,) = evaluation.reports(results)
    assert report.failed == 1
    assert report.accuracy == sum(row["ans_valid"] for row in report.rows if row["outcome"] != "timeout") / 2
