"""Oversampling: of a job's sampled rollouts the first to finish are kept, as they would be without it, and the others are cancelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.contracts.conversation import Conversation
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.lease import Lease
from rlcore.contracts.snapshots import Probe, Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, FinishReason, Message, Prompt, Request, Rollout, RolloutKind, Sampling, Score
from rlcore.roles.evaluator import Evaluator, HeldOut
from rlcore.roles.producer import GroupJob, ProducedGroup, Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.runtime.factories import AnnealedSampling, JobMaker, SourceJobs
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeInference, FakeInferenceOptions, FakePolicy, FakeTokenizer
from rlcore.testing.conversations.fake_conversation import FakeConversation, FakeConversationOptions
from rlcore.testing.tokens import write_fake_model

LIMIT = 24
SEED = 5
"""Of a group whose first eight rollouts have 7, 8, 10, 10, 17, 20, 22 and 24 tokens, in some order."""


class Silent:
    """Judges everything alike; keeps what it was given."""

    def __init__(self) -> None:
        self.done: list[tuple[int, tuple[Score, ...]]] = []
        self.judged: list[Rollout] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        self.judged += rollouts
        self.done.append((key, (Score(value=1.0, accuracy=1.0),) * len(rollouts)))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        done, self.done = self.done, []
        return done


class Watched(FakeInference):
    """Keeps what it was asked, what it answered, and what was cancelled; ``late``: a cancelled request has finished just before."""

    late = False

    def __init__(self, context: InferenceContext, options: FakeInferenceOptions | None = None) -> None:
        super().__init__(context, options)
        self.asked: list[Request] = []
        self.answered: list[Completion] = []
        self.cancelled: list[str] = []

    def submit(self, requests: Sequence[Request]) -> None:
        self.asked += requests
        super().submit(requests)

    def poll(self, timeout: float) -> list[Completion]:
        answered = super().poll(timeout)
        self.answered += answered
        return answered

    def cancel(self, request_ids: Iterable[str]) -> None:
        names = list(request_ids)
        self.cancelled += names
        if not self.late:
            super().cancel(names)

    def _on_new_weights(self) -> None:
        before = len(self.cancelled)
        super()._on_new_weights()
        del self.cancelled[before:]  # an update that aborts is no cancellation of the producer's

    @property
    def open(self) -> int:
        return len(self._waiting) + len(self._running)

    @property
    def drawn(self) -> int:
        return sum(len(completion.token_ids) for completion in self.answered)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_fake_model(tmp_path_factory.mktemp("model")))


def made_by(model: str, conversation: Conversation | None = None, *, prompts: int = 2, **options: object) -> tuple[Producer, Watched]:
    context = InferenceContext(model=model, tokenizer=FakeTokenizer(), prompts_per_forward=prompts, max_tokens=LIMIT + 16)
    engine = Watched(context, FakeInferenceOptions(**options))  # type: ignore[arg-type]
    return Producer("p0", engine, FakeTokenizer(), Silent(), TimeAccount(), conversation or SingleTurn()), engine


def job(key: int, seed: int, sampled: int, spare: int, greedy: int = 0) -> GroupJob:
    prompt = Prompt(prompt_id=f"q{key}", index=key, messages=(Message(role="user", content=f"say {key}"),))
    one = Sampling(max_new_tokens=LIMIT)
    samplings = (one,) * (sampled + spare) + (Sampling(max_new_tokens=LIMIT, temperature=0.0),) * greedy
    return GroupJob(key=key, prompt=prompt, samplings=samplings, noise=(seed, 0, key), spare=spare)


def drain(producer: Producer) -> dict[int, ProducedGroup]:
    results: list[ProducedGroup] = []
    while not producer.idle:
        results += producer.step(0.0)
    return {result.job.key: result for result in results}


def told(rollout: Rollout) -> tuple[int, list[int], list[float], FinishReason]:
    return rollout.index, rollout.token_ids.tolist(), rollout.segments[0].logprobs.tolist(), rollout.finish


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    sampled=st.integers(1, 5),
    spare=st.integers(1, 4),
    greedy=st.integers(0, 1),
    jobs=st.integers(1, 4),
    steps=st.integers(1, 9),
    prompts=st.integers(1, 4),
)
def test_the_shortest_are_kept_as_they_are_and_the_books_balance(
    model: str, seed: int, sampled: int, spare: int, greedy: int, jobs: int, steps: int, prompts: int
) -> None:
    plain, _ = made_by(model)
    plain.accept([job(key, seed, sampled + spare, 0, greedy) for key in range(jobs)])
    all_of = {key: result.rollouts for key, result in drain(plain).items()}
    producer, engine = made_by(model, prompts=prompts, steps_per_poll=steps)
    producer.accept([job(key, seed, sampled, spare, greedy) for key in range(jobs)])
    results = drain(producer)
    assert sorted(results) == list(range(jobs))
    for key, result in results.items():
        of_group = [rollout for rollout in all_of[key] if rollout.kind is RolloutKind.SAMPLED]
        first = sorted(of_group, key=lambda rollout: (rollout.length, rollout.index))[:sampled]
        kept = sorted(first, key=lambda rollout: rollout.index) + [rollout for rollout in all_of[key] if rollout.kind is RolloutKind.GREEDY]
        assert list(map(told, result.rollouts)) == list(map(told, kept))
        assert len(result.scores) == sampled + greedy
        assert result.cut_tokens <= sum(rollout.length for rollout in of_group) - sum(rollout.length for rollout in first)
    trained = sum(rollout.length for result in results.values() for rollout in result.rollouts)
    assert engine.drawn == trained + sum(result.cut_tokens for result in results.values())
    aborted = {completion.request_id for completion in engine.answered if completion.finish is FinishReason.ABORTED}
    assert set(engine.cancelled) == aborted, "who had finished was cancelled, or who was cancelled went on"
    assert len(engine.cancelled) == len(aborted), "a request was cancelled twice"
    assert (engine.open, producer.busy, engine.poll(0.0)) == (0, 0, [])
    assert len(producer._judge.judged) == jobs * (sampled + greedy)  # type: ignore[attr-defined]


def test_the_places_of_those_that_are_cut_are_free_for_the_next_prompt(model: str) -> None:
    producer, engine = made_by(model, prompts=1, steps_per_poll=1)
    producer.accept([job(key, SEED, 2, 6) for key in range(2)])
    results: list[ProducedGroup] = []
    while not results:
        results = producer.step(0.0)
    assert [result.job.key for result in results] == [0]
    assert (len(engine.cancelled) >= 6, producer.busy) == (True, 1)
    assert not engine._waiting, "the second prompt has not begun, and nothing but cut requests was in its way"


def test_a_job_is_busy_until_the_engine_is_done_with_those_that_are_cut(model: str) -> None:
    producer, engine = made_by(model, steps_per_poll=1)
    producer.accept([job(0, SEED, 1, 7)])
    while not engine.cancelled:
        assert producer.step(0.0) == []
    assert (producer.busy, producer.idle) == (1, False)
    (result,) = producer.step(0.0)
    assert (producer.busy, producer.idle, len(result.rollouts)) == (0, True, 1)


def test_an_answer_that_had_ended_when_it_was_cancelled_is_thrown_away_too(model: str) -> None:
    producer, engine = made_by(model, steps_per_poll=1)
    engine.late = True
    producer.accept([job(0, SEED, 3, 5)])
    result = drain(producer)[0]
    assert len(engine.cancelled) == len(set(engine.cancelled)) > 0, "a request was cancelled twice"
    assert all(completion.finish is not FinishReason.ABORTED for completion in engine.answered)
    assert len(result.rollouts) == 3
    assert engine.drawn == sum(rollout.length for rollout in result.rollouts) + result.cut_tokens


@pytest.mark.parametrize("continues", [False, True])
def test_what_an_update_aborts_is_asked_again_unless_it_was_cut(model: str, continues: bool) -> None:
    """An update aborts everything between two polls, once before the first rollout has ended and once while cut ones come back."""
    producer, engine = made_by(model, steps_per_poll=1, in_flight=InFlight.ABORT, continues=continues)
    producer.accept([job(0, SEED, 2, 6)])
    producer.step(0.0)
    producer.load(snapshot(1))
    while not engine.cancelled:
        producer.step(0.0)
    asked = len(engine.asked)
    producer.load(snapshot(2))
    result = drain(producer)[0]
    assert len(result.rollouts) == 2
    assert len(engine.asked) == asked
    assert all(rollout.finish is not FinishReason.ABORTED for rollout in result.rollouts)


def snapshot(version: int) -> Snapshot:
    policy = FakePolicy.random(len(FakeTokenizer()), version)
    ids = np.array([5, 6, 7], np.int32)
    return Snapshot.of(
        version, dict(policy.tensors()), Probe(token_ids=ids, logprobs=policy.logprobs(ids).astype(np.float32), tolerance=1e-4)
    )


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 6), sampled=st.integers(1, 4), spare=st.integers(1, 4))
def test_a_conversation_is_cut_in_whichever_turn_it_is(model: str, seed: int, steps: int, sampled: int, spare: int) -> None:
    talking = FakeConversation(FakeConversationOptions(rounds=3, tokens=5))
    plain, _ = made_by(model, talking)
    plain.accept([job(0, seed, sampled + spare, 0)])
    everything = {rollout.index: told(rollout) for rollout in drain(plain)[0].rollouts}
    producer, engine = made_by(model, talking, steps_per_poll=steps)
    producer.accept([job(0, seed, sampled, spare)])
    result = drain(producer)[0]
    indices = [rollout.index for rollout in result.rollouts]
    assert (len(indices), indices) == (sampled, sorted(set(indices)))
    assert all(told(rollout) == everything[rollout.index] for rollout in result.rollouts)
    assert all(sum(message.policy for message in rollout.turns) <= 3 for rollout in result.rollouts)
    assert engine.drawn == sum(rollout.length for rollout in result.rollouts) + result.cut_tokens
    assert (engine.open, producer.busy) == (0, 0)


def test_without_it_nothing_is_ever_cancelled(model: str) -> None:
    producer, engine = made_by(model)
    producer.accept([job(key, 0, 4, 0, greedy=1) for key in range(3)])
    assert all(len(result.rollouts) == 5 and result.cut_tokens == 0 for result in drain(producer).values())
    assert engine.cancelled == []


def test_a_lease_draws_more_than_it_asks_for_and_an_evaluation_does_not(model: str) -> None:
    prompt = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="a"),))
    sampling = Sampling(max_new_tokens=LIMIT)
    jobs = JobMaker([SourceJobs(prompts=(prompt,), sampling=AnnealedSampling(sampling=sampling, end=None, updates=1), spare=5)], SEED)
    leased = jobs.job(Lease(lease_id=5, episode=0, prompt_index=0, n_sampled=3, n_greedy=1))
    assert [one.temperature for one in leased.samplings] == [1.0] * 8 + [0.0]
    producer, engine = made_by(model)
    producer.accept([leased])
    arrival, group = jobs.finished(drain(producer)[5])
    assert [rollout.kind for rollout in group.rollouts] == [RolloutKind.SAMPLED] * 3 + [RolloutKind.GREEDY]
    assert arrival.cut_tokens == group.cut_tokens > 0
    assert engine.drawn == arrival.tokens + arrival.cut_tokens
    evaluation = Evaluator({"task": HeldOut((prompt,), sampling)}, 0).start(-1)
    assert [(len(one.samplings), one.spare) for one in evaluation.jobs] == [(1, 0)]
