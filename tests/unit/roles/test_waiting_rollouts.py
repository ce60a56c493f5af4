"""Rollouts that wait for something outside, have several requests open, or end without an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.conversation import Conversation, ConversationSteps, Dialogue, Transcript, Turn, Wait
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, Message, Outcome, Prompt, Sampling, Score, Segment
from rlcore.roles.producer import GroupJob, ProducedGroup, Producer
from rlcore.schedule import Role, TimeAccount
from rlcore.testing import FakeInferenceOptions, FakeTokenizer
from rlcore.testing.tokens import write_fake_model
from tests.unit.roles.test_oversampling import Silent, Watched, snapshot

Play = Callable[["Outside", Transcript], ConversationSteps]


@dataclass
class Outside(Conversation):
    """Plays ``play``; keeps the transcripts that began, and how many generators ended."""

    play: Play
    begun: list[Transcript] = field(default_factory=list)
    ended: int = 0
    open_now: bool = False

    def converse(self, transcript: Transcript) -> ConversationSteps:
        self.begun.append(transcript)
        try:
            return (yield from self.play(self, transcript))
        finally:
            self.ended += 1


def segment(turn: Turn, said: Completion) -> Segment:
    mask = np.ones(len(said.token_ids), np.bool_)
    arrays: dict[str, Any] = {name: getattr(said, name) for name in ("token_ids", "logprobs", "versions")}
    return Segment(context_ids=turn.context_ids, policy_mask=mask, **arrays)


def dialogue(answers: Sequence[tuple[Turn, Completion]], **fields: Any) -> Dialogue:
    """Return one segment and one message for each answer."""
    return Dialogue(
        segments=tuple(segment(turn, said) for turn, said in answers),
        messages=tuple(Message(role="assistant", content="", policy=True) for _ in answers),
        turn_lengths=tuple(len(said.token_ids) for _, said in answers),
        **fields,
    )


def turn(transcript: Transcript, *more: int, noise: int = 1) -> Turn:
    """Return a turn. Its answer has eight tokens with the noise 1, and one with 0."""
    ids = np.concatenate([transcript.context_ids, np.array(more, np.int32)])
    return Turn(ids, replace(transcript.sampling, max_new_tokens=8), noise)


def made(tmp_path: Path, conversation: Conversation, **options: Any) -> Producer:
    context = InferenceContext(
        model=str(write_fake_model(tmp_path / "model")), tokenizer=FakeTokenizer(), prompts_per_forward=4, max_tokens=64
    )
    engine = Watched(context, FakeInferenceOptions(**options))
    conversation.max_context_tokens = 64
    producer = Producer("p0", engine, FakeTokenizer(), Silent(), TimeAccount(), conversation)
    producer.engine = engine  # type: ignore[attr-defined]
    return producer


def job(n: int = 1, spare: int = 0, key: int = 0) -> GroupJob:
    prompt = Prompt(prompt_id=f"q{key}", index=key, messages=(Message(role="user", content="say"),))
    return GroupJob(key=key, prompt=prompt, samplings=(Sampling(max_new_tokens=24),) * (n + spare), noise=(0, 0, key), spare=spare)


def finish(producer: Producer, steps: int = 500) -> ProducedGroup:
    results: list[ProducedGroup] = []
    for _ in range(steps):
        results += producer.step(0.01)
        if producer.idle:
            break
    assert producer.idle
    assert producer.engine.open == 0  # type: ignore[attr-defined]
    return results[0]


def step_until(producer: Producer, done: Callable[[], bool]) -> None:
    for _ in range(500):
        producer.step(0.01)
        if done():
            return
    raise AssertionError("it never happened")


def two_at_once(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    first, second = turn(transcript, noise=7), turn(transcript, 5, noise=3)
    answers: dict[Turn, Completion] = {}
    came = yield Wait(turns=(first, second))
    while True:
        answers.update(came)
        if len(answers) == 2:
            return dialogue([(second, answers[second]), (first, answers[first])])  # in another order than they were asked
        came = yield Wait()


def test_several_requests_are_open_at_once_and_their_noise_is_their_own(tmp_path: Path) -> None:
    producer = made(tmp_path, Outside(two_at_once))
    producer.accept([job()])
    assert producer.engine.open == 2  # type: ignore[attr-defined]
    produced = finish(producer)
    assert [request.noise[3] >> 32 for request in producer.engine.asked] == [7, 3]  # type: ignore[attr-defined]
    (rollout,) = produced.rollouts
    assert len(rollout.segments) == 2
    assert rollout.turn_lengths == tuple(len(part.token_ids) for part in rollout.segments)


def waits_then_asks(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    while not conversation.open_now:
        assert (yield Wait()) == ()
    asked = turn(transcript)
    ((answered, said),) = yield Wait(turns=(asked,))
    assert answered is asked
    return dialogue([(asked, said)])


def test_a_rollout_waits_for_the_outside_and_any_thread_may_wake_it(tmp_path: Path) -> None:
    conversation = Outside(waits_then_asks)
    producer = made(tmp_path, conversation)
    producer.accept([job()])
    for _ in range(3):
        assert producer.step(0.001) == []
    assert not producer.idle
    assert producer.busy == 1
    assert producer.engine.asked == []  # type: ignore[attr-defined]
    conversation.open_now = True
    waker = threading.Thread(target=conversation.begun[0].wake)
    waker.start()
    waker.join()
    assert finish(producer).rollouts[0].length > 0
    conversation.begun[0].wake()  # after the end: nothing happens
    assert producer.step(0.0) == []


def test_a_wake_without_a_reason_resumes_the_generator_with_nothing(tmp_path: Path) -> None:
    conversation = Outside(waits_then_asks)
    producer = made(tmp_path, conversation)
    producer.accept([job()])
    conversation.begun[0].wake()
    producer.step(0.001)
    assert not producer.idle


def asks_and_hangs(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    yield Wait(turns=(turn(transcript),))
    while True:
        yield Wait()


def test_a_rollout_that_is_too_late_is_closed_and_masked_and_leaves_nothing_in_the_engine(tmp_path: Path) -> None:
    conversation = Outside(asks_and_hangs)
    conversation.deadline = 0.05
    producer = made(tmp_path, conversation)
    producer.accept([job(2)])
    produced = finish(producer)
    assert conversation.ended == 2
    for rollout in produced.rollouts:
        assert rollout.verdict is not None
        assert rollout.verdict.outcome is Outcome.TIMEOUT
        assert not rollout.verdict.in_loss
        assert rollout.length == 0


def test_the_requests_of_a_rollout_that_is_too_late_are_cancelled(tmp_path: Path) -> None:
    conversation = Outside(asks_and_hangs)
    conversation.deadline = 0.0001
    producer = made(tmp_path, conversation, steps_per_poll=1)
    producer.accept([job()])
    assert producer.engine.open == 1  # type: ignore[attr-defined]
    step_until(producer, lambda: producer.idle)
    assert producer.engine.cancelled == ["p0-1"]  # type: ignore[attr-defined]
    assert producer.engine.open == 0  # type: ignore[attr-defined]


def one_answers_others_hang(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    if transcript.noise[3] == 2:
        asked = turn(transcript)
        answers = yield Wait(turns=(asked,))
        return dialogue(answers)
    while True:
        yield Wait()


def test_a_waiting_rollout_is_cut_when_its_group_is_complete(tmp_path: Path) -> None:
    conversation = Outside(one_answers_others_hang)
    producer = made(tmp_path, conversation)
    producer.accept([job(1, spare=2)])
    produced = finish(producer)
    assert [rollout.index for rollout in produced.rollouts] == [2]
    assert conversation.ended == 3


def first_fails(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    if transcript.noise[3] == 0:
        return Dialogue(verdict=Score.failed(Outcome.INFRA, "the environment failed"))
    asked = turn(transcript)
    answers = yield Wait(turns=(asked,))
    return dialogue(answers)


def test_a_failed_rollout_leaves_its_place_to_a_spare_one(tmp_path: Path) -> None:
    producer = made(tmp_path, Outside(first_fails))
    producer.accept([job(2, spare=1)])
    assert [rollout.index for rollout in finish(producer).rollouts] == [1, 2]


def asks_and_fails(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    answers = yield Wait(turns=(turn(transcript),))
    said = dialogue(answers)
    return replace(said, verdict=Score.failed(Outcome.INFRA, "dead")) if transcript.noise[3] == 0 else said


def test_the_tokens_of_a_failed_rollout_that_leaves_its_place_are_cut_once(tmp_path: Path) -> None:
    producer = made(tmp_path, Outside(asks_and_fails))
    producer.accept([job(2, spare=1)])
    produced = finish(producer)
    sampled = sum(len(one.token_ids) for one in producer.engine.answered)  # type: ignore[attr-defined]
    assert produced.cut_tokens == sampled - sum(rollout.length for rollout in produced.rollouts)


def test_a_failed_rollout_is_in_the_group_if_no_other_takes_its_place(tmp_path: Path) -> None:
    producer = made(tmp_path, Outside(first_fails))
    producer.accept([job(3)])
    rollouts = finish(producer).rollouts
    assert [rollout.index for rollout in rollouts] == [0, 1, 2]
    assert rollouts[0].verdict is not None
    assert rollouts[0].text == ""


def waits_for_tools(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    while True:
        yield Wait(on="environments" if transcript.noise[3] == 0 else "tools")


def test_the_time_is_that_of_what_most_rollouts_wait_for(tmp_path: Path) -> None:
    for rollouts, expected in ((3, "tools"), (1, "environments")):
        producer = made(tmp_path / expected, Outside(waits_for_tools))
        producer.accept([job(rollouts)])
        producer.step(0.01)
        seconds = producer._account.report("p0", Role.PRODUCER).seconds
        assert [name for name in seconds if name.startswith("waiting")] == [f"waiting for {expected}"]


def fails_at_once(conversation: Outside, transcript: Transcript) -> Iterator[Any]:
    return Dialogue(verdict=Score.failed(Outcome.INFRA, "dead"))
    yield


def test_a_job_whose_conversations_all_end_at_once_comes_back(tmp_path: Path) -> None:
    producer = made(tmp_path, Outside(fails_at_once))  # type: ignore[arg-type]
    producer.accept([job(2)])
    assert len(finish(producer).rollouts) == 2


def cancels_one(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    first, second = turn(transcript, noise=7), turn(transcript, 5, noise=3)
    transcript.wake()
    came = dict((yield Wait(turns=(first, second))))
    came |= dict((yield Wait(cancel=(first,))))
    while second not in came:
        came |= dict((yield Wait()))
    assert first not in came
    return dialogue([(second, came[second])])


def test_a_cancelled_request_gets_no_answer_and_counts_as_cut(tmp_path: Path) -> None:
    producer = made(tmp_path, Outside(cancels_one), steps_per_poll=1)
    producer.accept([job()])
    producer.step(0.0)  # one token of each, and the wake
    produced = finish(producer)
    assert producer.engine.cancelled == ["p0-1"]  # type: ignore[attr-defined]
    cut = next(one for one in producer.engine.answered if one.request_id == "p0-1")  # type: ignore[attr-defined]
    assert produced.cut_tokens == len(cut.token_ids)
    assert len(produced.rollouts[0].segments) == 1


@pytest.mark.parametrize("in_flight", list(InFlight))
def test_an_update_in_the_middle_of_a_call_gives_one_answer(tmp_path: Path, in_flight: InFlight) -> None:
    conversation = Outside(waits_then_asks, open_now=True)
    producer = made(tmp_path, conversation, in_flight=in_flight, steps_per_poll=2)
    producer.load(snapshot(3))
    producer.accept([job()])
    producer.step(0.0)
    producer.load(snapshot(4))
    (rollout,) = finish(producer).rollouts
    versions = np.concatenate([part.versions for part in rollout.segments])
    assert set(versions.tolist()) <= {3, 4}
    if in_flight is InFlight.ABORT:
        assert set(versions.tolist()) == {4}
    assert (np.diff(versions) >= 0).all()


def test_close_ends_every_generator(tmp_path: Path) -> None:
    conversation = Outside(asks_and_hangs)
    producer = made(tmp_path, conversation)
    producer.accept([job(3)])
    producer.close()
    assert conversation.ended == 3


def trains_twice(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    answers = yield Wait(turns=(turn(transcript),))
    return dialogue([*answers, *answers])


def trains_a_half(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    ((asked, said),) = yield Wait(turns=(turn(transcript),))
    whole, length = segment(asked, said), len(said.token_ids) - 1
    parts: dict[str, Any] = {name: getattr(whole, name)[:length] for name in ("token_ids", "logprobs", "versions", "policy_mask")}
    said_half = Segment(context_ids=whole.context_ids, **parts)
    return Dialogue(segments=(said_half,), messages=(Message(role="assistant", content="", policy=True),), turn_lengths=(length,))


def asks_beyond_the_context(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    yield Wait(turns=(turn(transcript, *[5] * 60),))
    raise AssertionError


def makes_noise(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    yield Wait(turns=(turn(transcript, noise=2**31),))
    raise AssertionError


def ends_without_a_word(conversation: Outside, transcript: Transcript) -> ConversationSteps:
    yield Wait(turns=(turn(transcript),))
    return Dialogue()


@pytest.mark.parametrize(
    ("play", "says"),
    [
        (trains_twice, "is not a whole answer of the policy, or trains twice"),
        (trains_a_half, "is not a whole answer of the policy, or trains twice"),
        (asks_beyond_the_context, "raise --max-context-tokens"),
        (makes_noise, "the noise of a turn is 2147483648"),
        (ends_without_a_word, "without a verdict"),
    ],
)
def test_broken_rules_end_the_run(tmp_path: Path, play: Play, says: str) -> None:
    producer = made(tmp_path, Outside(play))
    with pytest.raises(RunError, match=says):  # noqa: PT012  the first request may break the rule, or the end
        producer.accept([job()])
        finish(producer)
