"""The records that cross modules and processes: frozen, slotted, keyword-only, with numpy arrays and plain values only.

Axes in the docstrings: ``C`` context tokens, ``T`` sampled tokens of a segment, ``V`` vocabulary. This module knows no torch, no tokenizer,
and no way in which a record travels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pickle import PickleBuffer
from typing import Any

import numpy as np

from rlcore.contracts.messages import Message, Prompt
from rlcore.contracts.pickling import pickled_by_fields
from rlcore.contracts.public_members import EnumMembers, PublicMembers

__all__ = [
    "AuditCase",
    "Completion",
    "FinishReason",
    "Group",
    "Message",
    "Outcome",
    "Prompt",
    "Request",
    "RewardInput",
    "Rollout",
    "RolloutKind",
    "Sampling",
    "Score",
    "Segment",
    "TokenDetails",
]


class FinishReason(StrEnum, metaclass=EnumMembers):
    """The reason why a completion ended."""

    STOP = "stop"
    """The end-of-sequence token or a stop string."""
    LENGTH = "length"
    """``max_new_tokens`` was reached: the response is truncated."""
    ABORTED = "aborted"
    """Cancelled, or dropped by a weight update of a backend that aborts."""


class RolloutKind(StrEnum):
    """The way in which the tokens of a rollout were chosen."""

    SAMPLED = "sampled"
    GREEDY = "greedy"


class Outcome(StrEnum, metaclass=EnumMembers):
    """The outcome of judging one rollout. The last four are failures of the judge, never of the judged text."""

    OK = "ok"
    WRONG = "wrong"
    MALFORMED = "malformed"
    UNPARSEABLE = "unparseable"
    TIMEOUT = "timeout"
    ERROR = "error"
    INFRA = "infra"
    INVALID = "invalid"

    @property
    def judged(self) -> bool:
        """True if the judge reached a verdict on the text, so that the value may train."""
        return self in (Outcome.OK, Outcome.WRONG, Outcome.MALFORMED, Outcome.UNPARSEABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(metaclass=PublicMembers):
    """How tokens are drawn. ``temperature`` 0 is greedy; ``top_p`` 1, ``top_k`` 0 and ``min_p`` 0 keep the whole vocabulary.

    ``top_p`` applies to the tokens that ``top_k`` keeps. ``min_p`` keeps the tokens that are at least this many times as likely as the
    likeliest. ``extra`` holds settings of one engine, by the names that its users know. An engine receives ``min_p`` and the names in
    ``extra`` only if its ``capabilities.sampling`` lists them.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    min_p: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def truncates(self) -> bool:
        """True if the sampler's distribution is not the policy's, or may not be: only the engine knows the effect of ``extra``."""
        return self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0 or bool(self.extra)


def _frozen(value: Any, dtype: Any) -> np.ndarray:
    array = np.array(value, dtype=dtype)
    array.setflags(write=False)
    return array


def _rebuild(cls: type, values: dict[str, Any]) -> Any:
    return cls(**values)


class _Rebuilt(metaclass=PublicMembers):
    """A record that pickles by its constructor, so that it is checked and read-only on arrival too."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {name: getattr(self, name) for name in self.__dataclass_fields__})  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(_Rebuilt):
    """A request for one completion, sent to an inference backend.

    ``token_ids``: int32[C], the context.
    ``noise``: the random stream, (seed, episode, prompt, rollout + 2**32 * turn). Token ``t`` is drawn with the stream's ``t``-th uniform
        number, so the draw depends neither on batching nor on timing.
    ``continued``: the number of tokens at the end of ``token_ids`` that belong to an aborted answer, which this request continues. Its
        token ``t`` is drawn with number ``continued + t``, a stop string may begin in those tokens, and ``max_new_tokens`` counts only new
        tokens. 0 unless the engine's capabilities say ``continues``.
    ``group``: the same text for all rollouts of a group and for all their turns, so that a router can send them to the place where their
        prompt is cached.
    """

    request_id: str
    token_ids: np.ndarray
    sampling: Sampling
    noise: tuple[int, int, int, int] = (0, 0, 0, 0)
    continued: int = 0
    group: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", _frozen(self.token_ids, np.int32))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDetails(_Rebuilt):
    """Details that an engine may report for each of ``T`` tokens, for a trainer that computes with them.

    ``kept_ids``: int32[K], with ``kept_offsets``: int64[T + 1]. Token ``t`` was drawn from ``kept_ids[kept_offsets[t]:kept_offsets[t +
        1]]``, the tokens that top-k, top-p or min-p kept, and its log probability is over these. An empty range: from the whole vocabulary.
    ``experts``: int16[T, layers, k], the experts that the routers chose when the token was predicted; -1: not known.

    None: the engine does not report it.
    """

    kept_ids: np.ndarray | None = None
    kept_offsets: np.ndarray | None = None
    experts: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, dtype in (("kept_ids", np.int32), ("kept_offsets", np.int64), ("experts", np.int16)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _frozen(getattr(self, name), dtype))
        if (self.kept_ids is None) != (self.kept_offsets is None):
            raise ValueError("token details must have both kept_ids and kept_offsets, or neither")
        if self.kept_ids is not None and self.kept_offsets is not None:
            first, last = self.kept_offsets[:1].tolist(), self.kept_offsets[-1:].tolist()
            if first != [0] or last != [len(self.kept_ids)] or (np.diff(self.kept_offsets) < 0).any():
                raise ValueError(f"kept_offsets must rise from 0 to {len(self.kept_ids)}, the number of kept_ids")
        if self.experts is not None and self.experts.ndim != 3:
            raise ValueError(f"experts has shape {list(self.experts.shape)}; it must be [tokens, layers, experts of a token]")

    def check(self, tokens: int, owner: str) -> None:
        """Raise ValueError, naming the ``owner``, if the details are not for this number of tokens."""
        found = {"kept_offsets": None if self.kept_offsets is None else len(self.kept_offsets) - 1}
        found["experts"] = None if self.experts is None else len(self.experts)
        if strange := [name for name, number in found.items() if number not in (None, tokens)]:
            raise ValueError(f"{owner} has {tokens} tokens, but details ({strange[0]}) of {found[strange[0]]}; the two must be equal")

    def take(self, places: np.ndarray) -> TokenDetails:
        """Return the details of the tokens at ``places`` int64[T'], in that order."""
        ids, offsets, lengths = self.kept_ids, self.kept_offsets, np.zeros(0, np.int64)
        if ids is not None and offsets is not None:
            ids = np.concatenate([ids[:0], *(ids[offsets[place] : offsets[place + 1]] for place in places)])
            lengths = np.diff(offsets)[places]
        return TokenDetails(
            kept_ids=ids,
            kept_offsets=None if offsets is None else np.concatenate([[0], np.cumsum(lengths)]),
            experts=None if self.experts is None else self.experts[places],
        )

    @staticmethod
    def joined(parts: Sequence[tuple[TokenDetails | None, int]]) -> TokenDetails | None:
        """Return the concatenated details of consecutive stretches, given as (details, number of tokens).

        Missing details count as not known.
        """
        given = [part for part, _ in parts if part is not None]
        kept, routed = any(part.kept_ids is not None for part in given), next((p.experts for p in given if p.experts is not None), None)
        if not kept and routed is None:
            return None
        lengths, ids, experts = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], []
        for part, tokens in parts:
            known = part or TokenDetails()
            lengths.append(np.zeros(tokens, np.int64) if known.kept_offsets is None else np.diff(known.kept_offsets))
            ids.append(ids[0] if known.kept_ids is None else known.kept_ids)
            if routed is not None:
                experts.append(np.full((tokens, *routed.shape[1:]), -1) if known.experts is None else known.experts)
        return TokenDetails(
            kept_ids=np.concatenate(ids) if kept else None,
            kept_offsets=np.cumsum(np.concatenate(lengths)) if kept else None,
            experts=None if routed is None else np.concatenate(experts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(_Rebuilt):
    """The answer of an inference backend to one request.

    ``token_ids``: int32[T], including the end-of-sequence token if one was sampled.
    ``logprobs``: float32[T], the log probabilities of the sampled tokens at the sampling temperature, over the full vocabulary (over the
        kept set if top-p or top-k cut it).
    ``versions``: int32[T], the policy version that produced each token.
    ``details``: see ``TokenDetails``, None for none.
    """

    request_id: str
    token_ids: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    finish: FinishReason
    details: TokenDetails | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", _frozen(self.token_ids, np.int32))
        object.__setattr__(self, "logprobs", _frozen(self.logprobs, np.float32))
        object.__setattr__(self, "versions", _frozen(self.versions, np.int32))
        if not len(self.token_ids) == len(self.logprobs) == len(self.versions):
            raise ValueError(
                f"completion {self.request_id}: token_ids, logprobs and versions have {len(self.token_ids)}, "
                f"{len(self.logprobs)} and {len(self.versions)} entries; they must be equal"
            )
        if self.details is not None:
            self.details.check(len(self.token_ids), f"completion {self.request_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(_Rebuilt):
    """A stretch of tokens that the policy produced after one context. A single-turn answer is one segment.

    ``context_ids``: int32[C].
    ``token_ids``: int32[T].
    ``logprobs``: float32[T], of the rollout policy.
    ``versions``: int32[T].
    ``policy_mask``: bool[T], False for tokens that were forced rather than sampled.
    ``details``: of all ``T`` tokens, see ``TokenDetails``.

    >>> Segment(context_ids=[1, 2], token_ids=[5, 6], logprobs=[-0.1, -0.2], versions=[0, 0], policy_mask=[True, True])
    """

    context_ids: np.ndarray
    token_ids: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    policy_mask: np.ndarray
    details: TokenDetails | None = None

    def __post_init__(self) -> None:
        for name, dtype in _SEGMENT_DTYPES.items():
            object.__setattr__(self, name, _frozen(getattr(self, name), dtype))
        lengths = {name: len(getattr(self, name)) for name in _SEGMENT_DTYPES if name != "context_ids"}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"a segment's per-token arrays must have one length, got {lengths}")
        if self.details is not None:
            self.details.check(len(self.token_ids), "a segment")

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the arrays as one buffer, which can travel out of band and is not copied on arrival."""
        packed = b"".join(getattr(self, name).tobytes() for name in _SEGMENT_DTYPES)
        buffer = PickleBuffer(packed) if protocol >= 5 else packed
        return _unpacked_segment, (len(self.context_ids), len(self.token_ids), buffer, self.details)


def _unpacked_segment(context: int, tokens: int, buffer: Any, details: TokenDetails | None) -> Segment:
    """Return the segment that ``Segment.__reduce_ex__`` packed. Raise ValueError if the buffer has another size."""
    # Bytes that were read from a socket belong to this record alone. A view into a shared store would keep the store's memory occupied.
    lent = isinstance(buffer, memoryview) and not isinstance(buffer.obj, bytes | bytearray)
    data = bytes(buffer) if lent else buffer
    if (due := 4 * context + 13 * tokens) != len(data):
        raise ValueError(f"a segment of {context} and {tokens} tokens arrived with {len(data)} bytes; it must have {due}")
    segment, start = object.__new__(Segment), 0
    for name, dtype in _SEGMENT_DTYPES.items():
        array: np.ndarray = np.frombuffer(data, dtype, context if name == "context_ids" else tokens, start)
        array.flags.writeable = False
        object.__setattr__(segment, name, array)
        start += array.nbytes
    object.__setattr__(segment, "details", details)
    return segment


_SEGMENT_DTYPES = {"context_ids": np.int32, "token_ids": np.int32, "logprobs": np.float32, "versions": np.int32, "policy_mask": np.bool_}


NO_TOKENS = Segment(context_ids=[], token_ids=[], logprobs=[], versions=[], policy_mask=[])  # type: ignore[arg-type]  # made arrays


@dataclass(frozen=True, slots=True)
class RolloutBranch:
    """A part of a rollout that is rewarded as a rollout of its own: how many of its ``segments``, in order. Since 2.0.

    Advantages compare it with the branches of the same ``player`` in its group.
    """

    segments: int
    player: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout(_Rebuilt):
    """One completion of a prompt, with all facts about its origin that training needs.

    ``text`` is the last message of the policy. ``turns``, ``turn_rewards`` and ``extra`` are the messages and the values that the
    conversation passes to the reward: see ``RewardInput``. ``turn_lengths``, ``branches`` and ``verdict`` are those of its ``Dialogue``.
    """

    prompt_id: str
    index: int
    segments: tuple[Segment, ...]
    text: str
    finish: FinishReason
    kind: RolloutKind = RolloutKind.SAMPLED
    temperature: float = 1.0
    """The temperature at which its tokens were sampled, 0 for greedy ones. Training uses the same temperature."""
    turns: tuple[Message, ...] = ()
    turn_rewards: tuple[float, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    turn_lengths: tuple[int, ...] = ()
    branches: tuple[RolloutBranch, ...] = ()
    verdict: Score | None = None

    def __post_init__(self) -> None:
        if not self.segments:
            raise ValueError(f"rollout {self.index} of prompt {self.prompt_id} has no segment; it must have at least one")
        if self.turn_lengths and (sum(self.turn_lengths) != self.length or min(self.turn_lengths) < 0):
            raise ValueError(
                f"rollout {self.index} of prompt {self.prompt_id} has turn_lengths {self.turn_lengths}; they must add up to the "
                f"{self.length} tokens that the policy sampled"
            )
        segments = [branch.segments for branch in self.branches]
        if segments and (sum(segments) != len(self.segments) or min(segments) < 1):
            raise ValueError(
                f"rollout {self.index} of prompt {self.prompt_id} has branches of {segments} segments; each needs one, and together they "
                f"must have the {len(self.segments)} segments of the rollout"
            )

    @property
    def length(self) -> int:
        """Number of tokens that the policy sampled."""
        return int(sum(int(segment.policy_mask.sum()) for segment in self.segments))

    @property
    def token_ids(self) -> np.ndarray:
        """int32[T]: the tokens that the policy sampled."""
        return np.concatenate([segment.token_ids[segment.policy_mask] for segment in self.segments])

    def without_tokens(self) -> Rollout:
        """Return the same rollout with one empty segment in place of its own, for readers that need only the messages."""
        return replace(self, segments=(NO_TOKENS,), turn_lengths=(), branches=())

    @property
    def version(self) -> int | None:
        """The smallest policy version of the tokens that the policy sampled; None if it sampled none."""
        versions = [int(segment.versions[segment.policy_mask].min()) for segment in self.segments if segment.policy_mask.any()]
        return min(versions) if versions else None


@pickled_by_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class RewardInput(metaclass=PublicMembers):
    """The input of a reward for one rollout.

    ``messages``: the prompt's messages.
    ``columns``: the columns that the reward declared.
    ``text``: the policy's last message.
    ``finish``: how the rollout ended.
    ``turns``: all messages after the prompt, in order. The policy's messages have ``policy=True``. If none are given, the answer alone.
    ``turn_rewards``: the numbers that the conversation gave to each of the policy's messages, () for none.
    ``extra``: other values that the conversation passes to the reward.
    ``token_ids``: int32[T], the tokens that the policy sampled. Present only if the reward's spec says ``reads_tokens``.
    """

    messages: tuple[Message, ...]
    columns: Mapping[str, Any]
    text: str
    finish: FinishReason = FinishReason.STOP
    turns: tuple[Message, ...] = ()
    turn_rewards: tuple[float, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    token_ids: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not self.turns:
            object.__setattr__(self, "turns", (Message(role="assistant", content=self.text, policy=True),))


@pickled_by_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Score(metaclass=PublicMembers):
    """A verdict and its reason.

    ``value``: the reward that trains.
    ``accuracy`` (0 to 1), ``format_ok``: reported and used for filtering, if the reward gives them.
    ``parts``: named shares of the value.
    ``parsed``: the answer that was judged, as extracted from the text.
    ``in_statistics``: whether the rollout counts for baselines and group accuracy.
    ``in_loss``: whether its tokens train.
    ``turn_rewards``: (), or ``value`` split over the messages of the policy. The rest of ``value`` belongs to the rollout as a whole.
    ``token_rewards``: one number for each of ``RewardInput.token_ids``, None for none. An estimator that needs them finds them next to the
        value.
    ``branch_values``: (), or the value of each branch of the rollout in place of ``value``.
    ``raw``: the value of each reward of the run before its weight, by name. rlcore fills it.

    >>> Score(value=10.0, accuracy=1.0, format_ok=True)
    >>> Score.failed(Outcome.TIMEOUT, "no verdict within 5 s")
    """

    value: float
    accuracy: float | None = None
    format_ok: bool | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    outcome: Outcome = Outcome.OK
    reason: str = ""
    parsed: str | None = None
    in_statistics: bool = True
    in_loss: bool = True
    turn_rewards: tuple[float, ...] = ()
    token_rewards: tuple[float, ...] | None = None
    branch_values: tuple[float, ...] = ()
    raw: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def failed(cls, outcome: Outcome, reason: str) -> Score:
        """Return a score for a failure of the judge or the machine: counted, and masked everywhere."""
        return cls(value=0.0, outcome=outcome, reason=reason, in_statistics=False, in_loss=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCase(metaclass=PublicMembers):
    """One completion that ``rlcore audit`` shows to a reward, with the expected verdict.

    ``accept``: True (a right answer), False (the reward must give it nothing that a right answer gets), None (both are fine, but the reward
    must finish). ``columns`` are those of the data row.

    >>> AuditCase(name="anagram", columns={"gt_answer": "live"}, text="\\\\boxed{evil}", accept=False)
    """

    name: str
    columns: Mapping[str, Any]
    text: str
    accept: bool | None
    messages: tuple[Message, ...] = (Message(role="user", content="?"),)
    finish: FinishReason = FinishReason.STOP
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(metaclass=PublicMembers):
    """The rollouts of one prompt with their scores, in the order of ``Rollout.index``. Sizes may differ between groups.

    With oversampling some indices may be absent. ``cut_tokens`` is the number of tokens sampled for rollouts that were cut; these are
    neither scored nor trained. ``source_index``: the number of the run's source that the prompt belongs to. ``level``: the difficulty at
    which an endless source made the prompt; None for other sources. ``ordinal``: how often the prompt was issued before in its episode.
    """

    prompt_id: str
    episode: int
    prompt_index: int
    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]
    cut_tokens: int = 0
    source_index: int = 0
    level: int | None = None
    ordinal: int = 0

    def __post_init__(self) -> None:
        if len(self.rollouts) != len(self.scores):
            raise ValueError(
                f"group {self.prompt_id} has {len(self.rollouts)} rollouts and {len(self.scores)} scores; each rollout must have one score"
            )
