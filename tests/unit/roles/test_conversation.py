"""Conversations in a producer: a broken rule ends the run in a sentence, contexts go on token for token, the reward hears it all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.contracts.conversation import Conversation, ConversationSteps, Dialogue, Transcript
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import InferenceContext, RewardDetail
from rlcore.contracts.types import Completion, FinishReason, Group, Message, Prompt, Request, Rollout, Sampling, Score
from rlcore.learning import BatchSettings, assemble_rewards
from rlcore.roles.producer import GroupJob, ProducedGroup, Producer
from rlcore.roles.single_turn import ActiveConversation, SingleTurn
from rlcore.schedule.accounting import TimeAccount
from rlcore.testing import FakeInference, FakeTokenizer, RunTester, write_fake_model
from rlcore.testing.conversations.fake_conversation import FakeConversation, FakeConversationOptions

PROMPT = Prompt(prompt_id="p7", index=7, messages=(Message(role="user", content="ab"),))


class Watched(FakeInference):
    """Keeps what it was asked."""

    def __init__(self, context: InferenceContext) -> None:
        super().__init__(context)
        self.asked: list[Request] = []

    def submit(self, requests: Sequence[Request]) -> None:
        self.asked += requests
        super().submit(requests)


class Silent:
    """Judges everything alike."""

    def __init__(self) -> None:
        self.done: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        self.done.append((key, (Score(value=0.0),) * len(rollouts)))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        done, self.done = self.done, []
        return done


def produced(folder: Path, conversation: Conversation, tokens: int = 16, rollouts: int = 3) -> tuple[ProducedGroup, Watched]:
    model = str(write_fake_model(folder))
    engine = Watched(InferenceContext(model=model, tokenizer=FakeTokenizer(), prompts_per_forward=8, max_tokens=4 + tokens))
    producer = Producer("p0", engine, FakeTokenizer(), Silent(), TimeAccount(), conversation)
    sampling = Sampling(max_new_tokens=tokens)
    producer.accept([GroupJob(key=1, prompt=PROMPT, samplings=(sampling,) * rollouts, noise=(0, 3, 7))])
    results: list[ProducedGroup] = []
    while not producer.idle:
        results += producer.step(0.05)
    return results[0], engine


def test_every_context_begins_with_the_last_one_and_what_was_sampled(tmp_path: Path) -> None:
    result, engine = produced(tmp_path, FakeConversation(FakeConversationOptions(rounds=3, saying="b", tokens=2)))
    start = FakeTokenizer().render(PROMPT.messages)
    by_rollout: dict[int, list[Request]] = {}
    for request in engine.asked:
        by_rollout.setdefault(request.noise[3] % 2**32, []).append(request)
    for rollout in result.rollouts:
        (segment,) = rollout.segments
        assert np.array_equal(segment.context_ids, start)
        whole = np.concatenate([segment.context_ids, segment.token_ids])
        assert [request.token_ids.tolist() for request in by_rollout[rollout.index]] == [
            whole[: len(request.token_ids)].tolist() for request in by_rollout[rollout.index]
        ]
        said = FakeTokenizer().encode("b")
        forced = segment.token_ids[~segment.policy_mask].tolist()
        assert forced == [3, *said, 4] * 2  # the template's user token, the message, the template's request for an answer
        assert rollout.length == int(segment.policy_mask.sum()) <= 6


def test_each_turn_draws_from_a_stream_of_its_own_and_the_first_from_the_one_it_had(tmp_path: Path) -> None:
    _, engine = produced(tmp_path, FakeConversation(FakeConversationOptions(rounds=2, tokens=2)))
    noises = [request.noise for request in engine.asked]
    assert set(noises) == {(0, 3, 7, index + turn * 2**32) for index in range(3) for turn in range(2)}


def test_a_single_turn_is_asked_and_kept_as_it_always_was(tmp_path: Path) -> None:
    result, engine = produced(tmp_path, SingleTurn())
    assert [request.noise for request in engine.asked] == [(0, 3, 7, index) for index in range(3)]
    for rollout in result.rollouts:
        (segment,) = rollout.segments
        assert segment.policy_mask.all()
        assert rollout.text == FakeTokenizer().decode(segment.token_ids.tolist())
        assert (rollout.turns, rollout.turn_rewards, rollout.extra) == ((), (), {})


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raises", "LookupError: the faulty conversation lost its thread"),
        ("text", "the yielded value is of type str, it must be a Turn"),
        ("endless", "it asked for more than max_turns = 3 turns; let it end, or raise max_turns"),
        ("hot", "a turn may change only max_new_tokens and stop of its sampling"),
        ("wide", "it asked for 13 tokens after a context of 3, and there is room for 12; raise --max-new-tokens"),
        ("mute", "it ended before the policy said anything"),
        ("unmasked", "policy_mask is True at a token that the policy did not sample"),
        ("plain", "the returned value is of type str, it must be a Dialogue"),
        ("miscounts", "turn_rewards is (1.0, 1.0); it must hold a finite number for each of the 1 messages of the policy"),
        ("object", "Object of type object is not JSON serializable"),
    ],
)
def test_a_fault_ends_the_run_in_one_sentence_that_names_plugin_and_distribution(tmp_path: Path, fault: str, said: str) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("faulty", target="tests.faulty_conversation")
    options = {"max_new_tokens": 12, "conversation": "faulty", "options": {"fault": fault}}
    done = tester.run("train", tester.fake_run(sampling=options))
    assert done.exit_code == 1, done
    lines = [line for line in done.stderr.splitlines() if "conversation 'faulty' of rlcore-plugin-faulty " in line]
    assert len(lines) == 1, done
    assert said in lines[0]
    assert ("Traceback" in done.stderr) == (fault in ("raises", "object"))  # what a plugin raised comes with its place


def a_talk(**given: Any) -> Transcript:
    tokenizer = given.pop("tokenizer", FakeTokenizer())
    return Transcript(PROMPT, tokenizer.render(PROMPT.messages), Sampling(max_new_tokens=given.pop("tokens", 32)), tokenizer)


def answered(transcript: Transcript, *ids: int, finish: FinishReason = FinishReason.STOP) -> None:
    """Let the policy answer with these tokens."""
    asked = transcript.ask()
    next(asked)
    answer = Completion(request_id="r", token_ids=list(ids), logprobs=[-1.0] * len(ids), versions=[5] * len(ids), finish=finish)  # type: ignore[arg-type]
    with pytest.raises(StopIteration):
        asked.send(answer)


class Closing(FakeTokenizer):
    """A template that ends every message with the stop token, as most chat templates do."""

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
        ids: list[int] = []
        for message in messages:
            ids += [{"user": 3, "assistant": 4}[message.role], *self.encode(message.content), 0]
        return np.array([*ids, 4], np.int32)


@pytest.mark.parametrize(
    ("sampled", "between"),
    [((5, 6, 0), [3, 7, 0, 4]), ((5, 6), [0, 3, 7, 0, 4])],
    ids=["the policy closed its answer", "its answer was cut"],
)
def test_the_end_of_an_answer_stands_there_once(sampled: tuple[int, ...], between: list[int]) -> None:
    transcript = a_talk(tokenizer=Closing())
    answered(transcript, *sampled)
    assert transcript.say(Message(role="user", content=Closing().decode([7])))
    (segment,) = transcript.dialogue().segments
    assert segment.token_ids.tolist() == [*sampled, *between]
    assert segment.policy_mask.tolist() == [True] * len(sampled) + [False] * len(between)
    assert set(segment.versions.tolist()) == {5}


def test_what_does_not_fit_is_not_said_and_the_rollout_counts_as_cut() -> None:
    transcript = a_talk(tokens=6)
    answered(transcript, 5, 6, 0)
    assert transcript.room == 3
    assert not transcript.say(Message(role="user", content="a"))  # three tokens: none would be left for an answer
    said = transcript.dialogue()
    assert said.finish is FinishReason.LENGTH
    assert [message.content for message in said.messages] == [FakeTokenizer().decode([5, 6])]


def test_an_inserted_text_continues_the_message_and_does_not_train() -> None:
    transcript, text = a_talk(), FakeTokenizer()
    answered(transcript, *text.encode("ab"))
    assert transcript.insert("cd")
    answered(transcript, *text.encode("ef"), 0)
    assert transcript.say(Message(role="user", content="g"))
    answered(transcript, *text.encode("h"))
    said = transcript.dialogue()
    (segment,) = said.segments
    assert text.decode(segment.token_ids.tolist()) == "abcdefgh"
    assert text.decode(segment.token_ids[segment.policy_mask].tolist()) == "abefh"
    assert (segment.versions.tolist(), segment.logprobs[2:4].tolist()) == ([5] * len(segment.versions), [0.0, 0.0])
    assert [(message.content, message.policy) for message in said.messages] == [("abcdef", True), ("g", False), ("h", True)]
    assert [message.inserted for message in said.messages] == [((2, 4),), (), ()]
    assert said.turn_lengths == (5, 1)  # sampled tokens alone


def test_each_message_has_the_length_of_its_answer_however_the_answers_lie() -> None:
    transcript = a_talk()
    answered(transcript)
    answered(transcript, 5, 6)
    answered(transcript, 7)
    said = transcript.dialogue(turn_rewards=(1.0, 2.0, 3.0))
    assert said.turn_lengths == (0, 2, 1)
    assert len(said.messages) == 3


class Inlines(Conversation):
    """Asks twice for one message, and once for another."""

    def converse(self, transcript: Transcript) -> ConversationSteps:
        yield from transcript.ask(2)
        transcript.insert("b")
        yield from transcript.ask(2)
        transcript.say(Message(role="user", content="a"))
        yield from transcript.ask(2)
        return self.said(transcript.dialogue(turn_rewards=(0.25, 0.75)))

    def said(self, dialogue: Dialogue) -> Dialogue:
        return dialogue


class Twice(Inlines):
    def said(self, dialogue: Dialogue) -> Dialogue:
        return replace(
            dialogue,
            segments=dialogue.segments * 2,
            messages=dialogue.messages * 2,
            turn_rewards=(),
            turn_lengths=dialogue.turn_lengths * 2,
        )


class Halved(Inlines):
    def said(self, dialogue: Dialogue) -> Dialogue:
        (one,) = dialogue.segments
        kept = one.policy_mask & (np.arange(len(one.token_ids)) > 0)
        return replace(
            dialogue, segments=(replace(one, policy_mask=kept),), turn_lengths=(dialogue.turn_lengths[0] - 1, dialogue.turn_lengths[1])
        )


def test_turns_with_inserted_texts_reach_the_estimator_with_their_rewards(tmp_path: Path) -> None:
    result, _ = produced(tmp_path, Inlines())
    group = Group(prompt_id="p7", episode=0, prompt_index=7, rollouts=result.rollouts, scores=(Score(value=1.0),) * 3)
    batch = assemble_rewards([group], BatchSettings(max_new_tokens=16), needs={RewardDetail.TURNS})
    assert batch.turn_lengths is not None
    assert batch.turn_offsets is not None
    assert batch.turn_offsets.tolist() == [0, 2, 4, 6]
    for number, rollout in enumerate(result.rollouts):
        assert len(rollout.turn_rewards) == len(rollout.turn_lengths) == 2
        assert batch.turn_lengths[2 * number : 2 * number + 2].tolist() == list(rollout.turn_lengths)


@pytest.mark.parametrize("made", [Twice(), Halved()])
def test_a_message_of_several_answers_holds_each_of_them_whole_and_once(tmp_path: Path, made: Conversation) -> None:
    with pytest.raises(RunError, match="a turn that trains is not a whole answer of the policy, or trains twice"):
        produced(tmp_path, made)


class Calls(Conversation):
    def converse(self, transcript: Transcript) -> ConversationSteps:
        yield from transcript.ask(2)
        said = transcript.dialogue()
        call = {"type": "function", "function": {"name": "add", "arguments": {}}}
        return replace(said, messages=(replace(said.messages[0], tool_calls=(call,)),))


def test_a_single_message_that_calls_a_tool_reaches_the_reward(tmp_path: Path) -> None:
    result, _ = produced(tmp_path, Calls())
    assert [turn.tool_calls[0]["function"]["name"] for rollout in result.rollouts for turn in rollout.turns] == ["add"] * 3


def test_nothing_follows_inside_a_message_that_has_ended() -> None:
    transcript = a_talk()
    answered(transcript, 5, 0)
    assert not transcript.insert("a")
    assert [message.content for message in transcript.dialogue().messages] == [FakeTokenizer().decode([5])]
    assert transcript.dialogue().finish is None  # as the answer ended


def test_an_inserted_text_that_does_not_fit_counts_as_cut() -> None:
    transcript = a_talk(tokens=4)
    answered(transcript, 5, 6)
    assert not transcript.insert("ab")
    assert transcript.dialogue().finish is FinishReason.LENGTH
    assert transcript.insert("a")
    assert transcript.room == 1


@pytest.mark.parametrize("spoken", [False, True])
def test_an_inserted_text_needs_an_answer_that_it_continues(spoken: bool) -> None:
    transcript = a_talk()
    if spoken:
        answered(transcript, 5)
        transcript.say(Message(role="user", content="a"))
    with pytest.raises(ValueError, match="no answer of the policy precedes it: ask first"):
        transcript.insert("a")


def test_a_template_that_shows_no_answer_is_told() -> None:
    class Deaf(FakeTokenizer):
        def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
            return np.array([3, 4], np.int32)

    transcript = a_talk(tokenizer=Deaf())
    answered(transcript, 5)
    with pytest.raises(ValueError, match="renders all answers alike"):
        transcript.say(Message(role="user", content="a"))


def test_a_message_that_pretends_to_be_the_policys_is_not() -> None:
    transcript = a_talk()
    answered(transcript, 5)
    transcript.say(Message(role="assistant", content="a", policy=True))
    assert [message.policy for message in transcript.dialogue().messages] == [True, False]


def test_a_tokenizer_that_cannot_decode_is_blamed_and_not_the_conversation() -> None:
    class Mumbling(FakeTokenizer):
        def decode(self, token_ids: Sequence[int]) -> str:
            raise KeyError(9)

    talk = ActiveConversation(SingleTurn(), a_talk(tokenizer=Mumbling()))
    talk.begin()
    said = Completion(request_id="r", token_ids=[5], logprobs=[0], versions=[0], finish=FinishReason.STOP)  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"^the tokenizer failed to decode the sampled tokens: KeyError: 9$"):
        talk.advance([(talk.asks[0], said)])


def test_the_reward_gets_the_whole_conversation(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write(
        "hears.py",
        "import json\nfrom rlcore.api import Score\n"
        "def hears(item):\n"
        "    said = [(m.role, m.content, m.policy) for m in (*item.messages, *item.turns)]\n"
        "    row = {'said': said, 'text': item.text, 'turn_rewards': item.turn_rewards, 'extra': dict(item.extra)}\n"
        f"    open({str(tmp_path / 'heard.jsonl')!r}, 'a').write(json.dumps(row) + '\\n')\n"
        "    return Score(value=sum(item.turn_rewards), turn_rewards=item.turn_rewards)\n",
    )
    sampling = {"max_new_tokens": 12, "conversation": "fake", "options": {"saying": "f", "tokens": 1}}
    path = tester.fake_run(sampling=sampling, run={"max_steps": 1}, schedule={"reward_workers": 1})
    folder = tester.folder / tester.run("train", path, "-rt", "./hears.py:hears", "--json").assert_ok().json["run"]
    heard = [json.loads(line) for line in (tmp_path / "heard.jsonl").read_text().splitlines()]
    assert len(heard) == 3 * 8
    for row in heard:
        (_, _, prompt), (one, first, wrote), (two, told, hinted), (three, second, more) = row["said"]
        assert [prompt, wrote, hinted, more] == [False, True, False, True]
        assert (one, two, told, three) == ("assistant", "user", "f", "assistant")
        assert (row["text"], row["extra"]) == (second, {"answers": [first, second]})
        assert row["turn_rewards"] == [len(first), len(second)]
    rows = list(RunRecord(folder).rollouts(1))
    assert rows
    assert all(row["reward"] == sum(row["turn_rewards"]) for row in rows)
