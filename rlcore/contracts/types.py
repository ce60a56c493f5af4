"""The records that cross modules and processes: frozen, slotted, keyword-only, numpy and plain values only.

Axes used in the docstrings: ``C`` context tokens, ``T`` sampled tokens of a segment, ``V`` vocabulary.
Nothing here knows torch, a tokenizer, or how a record travels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

__all__ = [
    "AuditCase",
    "Completion",
    "Finish",
    "Group",
    "Kind",
    "Lease",
    "Message",
    "Outcome",
    "Prompt",
    "Request",
    "RewardInput",
    "Rollout",
    "Sampling",
    "Score",
    "Segment",
]


class Finish(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """The end-of-sequence token or a stop string."""
    LENGTH = "length"
    """``max_new_tokens`` was reached: the response is truncated."""
    ABORTED = "aborted"
    """Cancelled, or dropped by a weight update of a backend that aborts."""


class Kind(StrEnum):
    """How the tokens of a rollout were chosen."""

    SAMPLED = "sampled"
    GREEDY = "greedy"


class Outcome(StrEnum):
    """What became of judging one rollout. The last four are failures of the judge, never of the judged text."""

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
        """True where the judge reached a verdict on the text, so that the value may train."""
        return self in (Outcome.OK, Outcome.WRONG, Outcome.MALFORMED, Outcome.UNPARSEABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat: ``Message(role="user", content="sort 8 3 1 6")``. ``policy``: the policy wrote it, in this rollout."""

    role: str
    content: str
    policy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One row of a data set, checked.

    ``index`` is its place in the data set, ``columns`` everything beside ``messages`` and ``reward`` (``gt_answer``,
    ``test_cases``, …), ``reward`` the reward that the row routes itself to, ``source`` its ``file:line``.
    """

    prompt_id: str
    index: int
    messages: tuple[Message, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)
    reward: str | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn. ``temperature`` 0 is greedy; ``top_p`` 1 and ``top_k`` 0 leave the vocabulary whole."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()

    @property
    def truncates(self) -> bool:
        """True where the sampler's distribution is not the policy's."""
        return self.top_p < 1.0 or self.top_k > 0


def _frozen(value: Any, dtype: Any) -> np.ndarray:
    array = np.array(value, dtype=dtype)
    array.setflags(write=False)
    return array


def _rebuild(cls: type, values: dict[str, Any]) -> Any:
    return cls(**values)


class _Rebuilt:
    """Pickles by its constructor, so that a record is checked and read-only on arrival too."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {name: getattr(self, name) for name in self.__dataclass_fields__})  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(_Rebuilt):
    """One completion asked of an inference backend.

    ``token_ids`` int32[C] is the context. ``noise`` names the random stream, (seed, episode, prompt, rollout + 2**32 * turn): token ``t``
    is drawn with the stream's ``t``-th uniform number, so the draw depends neither on batching nor on timing.

    ``continued``: so many tokens at the end of ``token_ids`` are of an answer that was aborted, and this one goes on with it: its token
    ``t`` is drawn with number ``continued + t``, a stop string may begin in them, and ``max_new_tokens`` counts the new ones. 0 unless the
    engine's capabilities say ``continues``.
    """

    request_id: str
    token_ids: np.ndarray
    sampling: Sampling
    noise: tuple[int, int, int, int] = (0, 0, 0, 0)
    continued: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", _frozen(self.token_ids, np.int32))


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(_Rebuilt):
    """What an inference backend returns for one request.

    ``token_ids`` int32[T] includes the end-of-sequence token where one was sampled; ``logprobs`` float32[T] are those of the
    sampled tokens at the sampling temperature, over the full vocabulary (over the kept set where top-p or top-k cut it);
    ``versions`` int32[T] is the policy version that produced each token.
    """

    request_id: str
    token_ids: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    finish: Finish

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", _frozen(self.token_ids, np.int32))
        object.__setattr__(self, "logprobs", _frozen(self.logprobs, np.float32))
        object.__setattr__(self, "versions", _frozen(self.versions, np.int32))
        if not len(self.token_ids) == len(self.logprobs) == len(self.versions):
            raise ValueError(
                f"completion {self.request_id}: token_ids, logprobs and versions have {len(self.token_ids)}, "
                f"{len(self.logprobs)} and {len(self.versions)} entries; they must be equal"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(_Rebuilt):
    """A stretch of tokens that the policy produced after one context; a single-turn answer is one segment.

    ``context_ids`` int32[C]; ``token_ids`` int32[T]; ``logprobs`` float32[T] of the rollout policy; ``versions`` int32[T];
    ``policy_mask`` bool[T], False where a token was forced rather than sampled.

    >>> Segment(context_ids=[1, 2], token_ids=[5, 6], logprobs=[-0.1, -0.2], versions=[0, 0], policy_mask=[True, True])
    """

    context_ids: np.ndarray
    token_ids: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    policy_mask: np.ndarray

    def __post_init__(self) -> None:
        for name, dtype in _SEGMENT_DTYPES.items():
            object.__setattr__(self, name, _frozen(getattr(self, name), dtype))
        lengths = {name: len(getattr(self, name)) for name in _SEGMENT_DTYPES if name != "context_ids"}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"a segment's per-token arrays must have one length, got {lengths}")


_SEGMENT_DTYPES = {
    "context_ids": np.int32,
    "token_ids": np.int32,
    "logprobs": np.float32,
    "versions": np.int32,
    "policy_mask": np.bool_,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One completion of a prompt, with everything that training needs to know of how it came about. ``text`` is what the policy said last;
    ``turns``, ``turn_rewards`` and ``extra`` are the messages and what else the conversation told for the reward: see ``RewardInput``."""

    prompt_id: str
    index: int
    segments: tuple[Segment, ...]
    text: str
    finish: Finish
    kind: Kind = Kind.SAMPLED
    temperature: float = 1.0
    """The temperature that its tokens were sampled at; 0 for greedy ones. What is trained is trained at it."""
    turns: tuple[Message, ...] = ()
    turn_rewards: tuple[float, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.segments:
            raise ValueError(f"rollout {self.index} of prompt {self.prompt_id} has no segment; one is the least")

    @property
    def length(self) -> int:
        """Number of tokens that the policy sampled."""
        return int(sum(int(segment.policy_mask.sum()) for segment in self.segments))

    @property
    def token_ids(self) -> np.ndarray:
        """int32[T]: the tokens that the policy sampled."""
        return np.concatenate([segment.token_ids[segment.policy_mask] for segment in self.segments])

    @property
    def version(self) -> int | None:
        """The smallest policy version of the tokens that the policy sampled; None where it has no such token."""
        versions = [int(segment.versions[segment.policy_mask].min()) for segment in self.segments if segment.policy_mask.any()]
        return min(versions) if versions else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardInput:
    """What a reward sees of one rollout: the prompt's messages, the columns it declared, what the policy said last, how it ended.

    ``turns``: all that was said behind the prompt, in order, the policy's messages with ``policy=True``; the answer alone if nothing is
    given. ``turn_rewards``: what the conversation gave for each of these, () for nothing; ``extra``: what else it told the reward.
    ``token_ids`` int32[T]: the tokens that the policy sampled, only if the reward's spec says ``reads_tokens``.
    """

    messages: tuple[Message, ...]
    columns: Mapping[str, Any]
    text: str
    finish: Finish = Finish.STOP
    turns: tuple[Message, ...] = ()
    turn_rewards: tuple[float, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    token_ids: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not self.turns:
            object.__setattr__(self, "turns", (Message(role="assistant", content=self.text, policy=True),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A verdict and its reason.

    ``value`` trains; ``accuracy`` (0 to 1) and ``format_ok`` are reported and filtered on where the reward gives them; ``parts``
    are named shares of the value; ``parsed`` is the answer that was judged, as extracted from the text. ``in_statistics``: counts for
    baselines and group accuracy. ``in_loss``: its tokens train. ``turn_rewards``: (), or ``value`` split over the messages of the policy;
    what they do not add up to belongs to the rollout as a whole. ``token_rewards``: one number for each of ``RewardInput.token_ids``,
    which an estimator that needs them finds beside the value; None: none.

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

    @classmethod
    def failed(cls, outcome: Outcome, reason: str) -> Score:
        """A score for an accident of the judge or the machine: counted, and masked everywhere."""
        return cls(value=0.0, outcome=outcome, reason=reason, in_statistics=False, in_loss=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCase:
    """One completion that ``rlcore audit`` shows a reward, with what is right: ``accept`` True (a right answer), False (must earn nothing
    that a right answer earns), None (either will do, if only it ends). ``columns`` are those of the data row.

    >>> AuditCase(name="anagram", columns={"gt_answer": "live"}, text="\\\\boxed{evil}", accept=False)
    """

    name: str
    columns: Mapping[str, Any]
    text: str
    accept: bool | None
    messages: tuple[Message, ...] = (Message(role="user", content="?"),)
    finish: Finish = Finish.STOP
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The rollouts of one prompt with their scores, in the order of ``Rollout.index``; sizes may differ between groups."""

    prompt_id: str
    episode: int
    prompt_index: int
    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]

    def __post_init__(self) -> None:
        if len(self.rollouts) != len(self.scores):
            raise ValueError(
                f"group {self.prompt_id} has {len(self.rollouts)} rollouts and {len(self.scores)} scores; one each is the rule"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right and the duty to produce one group. Indices only: every producer reads the same data set."""

    lease_id: int
    episode: int
    prompt_index: int
    n_sampled: int
    n_greedy: int = 0
    version: int = 0
