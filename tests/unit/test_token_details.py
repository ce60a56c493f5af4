"""What an engine tells of each token: checked in shape, cut, joined, pickled, and carried from a fake engine into a batch."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.conversation import Conversation
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import (
    Completion,
    FinishReason,
    Group,
    Message,
    Outcome,
    Prompt,
    Request,
    Rollout,
    Sampling,
    Score,
    Segment,
    TokenDetails,
)
from rlcore.learning import collate
from rlcore.learning.assemble import BatchSettings, assemble_batch
from rlcore.roles.producer import GroupJob, Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeInference, FakeInferenceOptions, FakePolicy, FakeTokenizer, write_fake_model
from rlcore.testing.conversations.fake_conversation import FakeConversation, FakeConversationOptions
from rlcore.testing.inference.fake_inference import fake_experts
from rlcore.testing.policy import log_softmax

KEPT = [[4, 5], [], [1, 2, 3]]


def details(kept: list[list[int]] = KEPT) -> TokenDetails:
    ids = np.array([token for of_token in kept for token in of_token])
    experts = np.arange(len(kept) * 4).reshape(-1, 2, 2)
    return TokenDetails(kept_ids=ids, kept_offsets=np.cumsum([0, *map(len, kept)]), experts=experts)


def kept_of(told: TokenDetails) -> list[list[int]]:
    assert told.kept_ids is not None
    assert told.kept_offsets is not None
    ends = told.kept_offsets.tolist()
    return [told.kept_ids[start:end].tolist() for start, end in pairwise(ends)]


def experts_of(told: TokenDetails) -> list[Any]:
    assert told.experts is not None
    return told.experts.tolist()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kept_ids": [1]}, "kept_ids and kept_offsets, or neither"),
        ({"kept_ids": [1, 2], "kept_offsets": [0, 1]}, "must rise from 0 to 2, the number of kept_ids"),
        ({"kept_ids": [1, 2], "kept_offsets": [1, 2]}, "must rise from 0 to 2"),
        ({"kept_ids": [1, 2], "kept_offsets": [0, 2, 1, 2]}, "must rise from 0 to 2"),
        ({"kept_ids": [], "kept_offsets": []}, "must rise from 0 to 0"),
        ({"experts": [[1, 2]]}, r"experts has shape \[1, 2\]; it must be \[tokens, layers, experts of a token\]"),
    ],
)
def test_details_of_another_shape_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TokenDetails(**fields)


@pytest.mark.parametrize(
    "told", [details(), TokenDetails(experts=np.zeros((3, 1, 1))), TokenDetails(kept_ids=[7], kept_offsets=[0, 0, 1, 1])]
)
def test_details_of_another_number_of_tokens_are_refused_by_completion_and_segment(told: TokenDetails) -> None:
    arrays = {"token_ids": [1, 2], "logprobs": [0, 0], "versions": [0, 0]}
    with pytest.raises(ValueError, match=r"completion r has 2 tokens, but details \((kept_offsets|experts)\) of 3; the"):
        Completion(request_id="r", finish=FinishReason.STOP, details=told, **arrays)
    with pytest.raises(ValueError, match="a segment has 2 tokens, but details"):
        Segment(context_ids=[1], policy_mask=[True, True], details=told, **arrays)


def test_taking_tokens_takes_what_was_told_of_them() -> None:
    taken = details().take(np.array([2, 0]))
    assert kept_of(taken) == [[1, 2, 3], [4, 5]]
    assert experts_of(taken) == [[[8, 9], [10, 11]], [[0, 1], [2, 3]]]
    assert kept_of(details().take(np.zeros(0, np.int64))) == []
    assert TokenDetails(experts=np.zeros((3, 1, 1))).take(np.array([1])).kept_ids is None


def test_joined_stretches_have_nothing_where_nothing_was_told() -> None:
    told = TokenDetails.joined([(None, 2), (details(), 3), (TokenDetails(kept_ids=[9], kept_offsets=[0, 1]), 1)])
    assert told is not None
    assert kept_of(told) == [[], [], *KEPT, [9]]
    unknown = [[-1, -1], [-1, -1]]
    assert experts_of(told) == [unknown, unknown, *experts_of(details()), unknown]
    assert TokenDetails.joined([(None, 2), (TokenDetails(), 1)]) is None
    assert TokenDetails.joined([]) is None


def test_details_arrive_equal_and_read_only_by_pickle() -> None:
    segment = Segment(context_ids=[1], token_ids=[1, 2, 3], logprobs=[0] * 3, versions=[0] * 3, policy_mask=[True] * 3, details=details())
    arrived = pickle.loads(pickle.dumps(segment)).details
    assert kept_of(arrived) == KEPT
    assert experts_of(arrived) == experts_of(details())
    assert not arrived.experts.flags.writeable
    assert arrived.kept_offsets.dtype == np.int64
    assert arrived.experts.dtype == np.int16


# --- from an engine into a batch -----------------------------------------------------------------------------------------


class ZeroJudge:
    """Every answer is worth nothing."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Any, *, counted: bool = True) -> None:
        self.waiting.append((key, tuple(Score(value=0.0, outcome=Outcome.OK) for _ in rollouts)))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        waiting, self.waiting = self.waiting, []
        return waiting


MIN_P = 0.4
SAMPLING = Sampling(max_new_tokens=24, top_k=9, min_p=MIN_P)


def generated(tmp_path: Path, conversation: Conversation, sampling: Sampling = SAMPLING, **options: Any) -> tuple[Group, list[Request]]:
    tokenizer = FakeTokenizer()
    model = write_fake_model(tmp_path / "model", scale=1.0)
    context = InferenceContext(model=str(model), tokenizer=tokenizer, prompts_per_forward=4, max_tokens=128)
    engine = FakeInference(context, FakeInferenceOptions(steps_per_poll=1, **{"tells": True, **options}))
    requests: list[Request] = []
    submit = engine.submit
    engine.submit = lambda asked: (requests.extend(asked), submit(asked))[1]  # type: ignore[method-assign]
    made = Producer("p0", engine, tokenizer, ZeroJudge(), TimeAccount(), conversation)
    prompt = Prompt(prompt_id="q", index=0, messages=(Message(role="user", content="say it"),))
    made.accept([GroupJob(key=key, prompt=prompt, samplings=(sampling,) * 3, noise=(0, 0, key)) for key in (5, 6)])
    produced, version = [], 0
    while not made.idle:
        produced += made.step(0.01)
        if options.get("in_flight") and version < 3:
            made.load(Snapshot.of(version := version + 1, dict(FakePolicy.load(model).tensors())))
    (first,) = [one for one in produced if one.job.key == 5]
    return Group(prompt_id="q", episode=0, prompt_index=0, rollouts=first.rollouts, scores=first.scores), requests


TWO_TURNS = FakeConversation(FakeConversationOptions(rounds=2, tokens=4))


def by_hand(policy: FakePolicy, rollout: Rollout) -> list[tuple[list[int], Any, float]]:
    """Of each token that the policy sampled: the ids that it was drawn from, its experts, its log probability over these."""
    found = []
    for segment in rollout.segments:
        ids = np.concatenate([segment.context_ids, segment.token_ids]).tolist()
        for place in np.flatnonzero(segment.policy_mask):
            at = len(segment.context_ids) + int(place)
            scores = log_softmax(policy.logits(np.array(ids[:at], np.int32))[-1])
            likeliest = sorted(range(len(scores)), key=lambda token, scores=scores: -scores[token])[:9]
            kept = sorted(token for token in likeliest if np.exp(scores[token]) >= MIN_P * np.exp(scores.max()))
            mass = np.log(sum(np.exp(scores[token]) for token in kept))
            found.append((kept, fake_experts(ids[at - 1], ids[at]).tolist(), scores[ids[at]] - mass))
    return found


@pytest.mark.parametrize("conversation", [SingleTurn(), TWO_TURNS], ids=["one turn", "two turns"])
def test_what_the_engine_tells_arrives_in_the_batch_and_in_every_cut_of_it(tmp_path: Path, conversation: Conversation) -> None:
    group, _ = generated(tmp_path, conversation)
    policy = FakePolicy.load(tmp_path / "model")
    batch = assemble_batch([group], None, BatchSettings(max_new_tokens=24))
    rows = [by_hand(policy, rollout) for rollout in batch.rollouts]
    assert len({len(row) for row in rows}) > 1 or conversation is TWO_TURNS
    assert any(len(kept) < 9 for row in rows for kept, _, _ in row), "min_p cut nothing"

    def check(told: TokenDetails | None, wanted: list[tuple[list[int], Any, float]]) -> None:
        assert told is not None
        assert kept_of(told) == [kept for kept, _, _ in wanted]
        assert experts_of(told) == [experts for _, experts, _ in wanted]

    check(batch.details, [token for row in rows for token in row])
    np.testing.assert_allclose(batch.rollout_logprobs, [logprob for row in rows for _, _, logprob in row], atol=1e-5)
    check(batch.take(np.array([2, 0])).details, [*rows[2], *rows[0]])
    check(collate(batch, np.array([1, 2])).share.details, [*rows[1], *rows[2]])


def test_between_two_turns_nothing_is_known(tmp_path: Path) -> None:
    group, _ = generated(tmp_path, TWO_TURNS)
    said = 0
    for rollout in group.rollouts:
        (segment,) = rollout.segments
        assert segment.details is not None
        silent = np.flatnonzero(~segment.policy_mask)
        said += len(silent)
        assert kept_of(segment.details.take(silent)) == [[]] * len(silent)
        assert segment.details.take(silent).experts.tolist() == [[[-1, -1], [-1, -1]]] * len(silent)
    assert said


def test_an_answer_that_was_continued_has_the_details_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, _ = generated(tmp_path / "whole", SingleTurn())
    cut, requests = generated(tmp_path / "cut", SingleTurn(), in_flight=InFlight.ABORT, continues=True)
    assert any(request.continued for request in requests)
    settings = BatchSettings(max_new_tokens=24)
    one, other = (assemble_batch([group], None, settings).details for group in (whole, cut))
    assert one is not None
    assert other is not None
    assert kept_of(one) == kept_of(other)
    assert experts_of(one) == experts_of(other)


def test_an_engine_that_tells_nothing_leaves_nothing(tmp_path: Path) -> None:
    group, _ = generated(tmp_path, TWO_TURNS, tells=False)
    assert all(segment.details is None for rollout in group.rollouts for segment in rollout.segments)
    assert assemble_batch([group], None, BatchSettings(max_new_tokens=24)).details is None


def test_the_requests_of_a_group_name_it_in_every_turn_and_no_two_groups_share_a_name(tmp_path: Path) -> None:
    _, requests = generated(tmp_path, TWO_TURNS, in_flight=InFlight.ABORT, continues=True)
    groups: dict[int, set[str]] = {}
    for request in requests:
        groups.setdefault(request.noise[2], set()).add(request.group)
    assert [len(names) for names in groups.values()] == [1, 1]
    assert len(set.union(*groups.values())) == 2
    assert "" not in set.union(*groups.values())


def test_what_the_fake_engine_is_told_to_ban_is_never_drawn(tmp_path: Path) -> None:
    group, _ = generated(tmp_path, SingleTurn(), Sampling(max_new_tokens=24, extra={"banned": list(range(3, 40, 2))}))
    ids = np.concatenate([rollout.token_ids for rollout in group.rollouts])
    assert len(ids) > 10
    assert not np.isin(ids, range(3, 40, 2)).any()
