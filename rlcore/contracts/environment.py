"""Environments: programs that talk to the policy for as long as an episode takes. This module knows no HTTP and no process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from rlcore.contracts.errors import DataError
from rlcore.contracts.specs import EnvironmentSpec

__all__ = [
    "ChosenEnvironment",
    "Environment",
    "EpisodeOutcome",
    "EpisodeResult",
    "Model",
    "ProgramCommand",
    "ProgramEnvironment",
    "TurnEnvironment",
]

EpisodeOutcome = Literal["ok", "timeout", "crashed", "environment"]
"""How an episode ended: by itself; too late; because the agent failed; because the environment or the grader failed."""


class Model(Protocol):
    """The policy, as a server with the interface of OpenAI. ``client`` is an ``openai.AsyncOpenAI`` for it.

    ``players``: the models of ``sampling.options.players``, by name, each of them without players of its own. Since 2.0.
    """

    name: str
    base_url: str
    api_key: str

    @property
    def players(self) -> Mapping[str, Model]: ...
    @property
    def client(self) -> Any: ...
    async def chat(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> dict[str, Any]:
        """Return the assistant's message for a chat, with the ``id`` of the call.

        ``settings`` are those of OpenAI's ``chat.completions.create``.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """The end of an episode.

    ``reward``: the environment's own reward, None if it gives none.
    ``turn_rewards``: the reward of a call, by the call's id; together they are a part of ``reward``.
    ``branch_rewards``: the reward of a branch in place of ``reward``, by the id of its last call.
    ``player_rewards``: the reward of a player in place of ``reward``. If ``reward`` is None, it is their mean.
    ``calls``: the ids of the calls that train. None: those of the main conversation.
    ``sampled``: the token ids of all answers of the policy as the environment recorded them, one list an answer, in any order. If they
        differ from what was sampled, the environment has failed. None: it has no record.
    ``extra``: plain values for rewards and metrics.
    ``reason``: why ``outcome`` is not "ok".

    >>> EpisodeResult(reward=1.0, extra={"guesses": 3})
    """

    outcome: EpisodeOutcome = "ok"
    reward: float | None = None
    turn_rewards: Mapping[str, float] = field(default_factory=dict)
    branch_rewards: Mapping[str, float] = field(default_factory=dict)
    player_rewards: Mapping[str, float] = field(default_factory=dict)
    calls: tuple[str, ...] | None = None
    sampled: Sequence[Sequence[int]] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    def __post_init__(self) -> None:
        if self.outcome not in get_args(EpisodeOutcome):
            raise ValueError(f"the outcome of an episode is {self.outcome!r}; it must be one of {', '.join(get_args(EpisodeOutcome))}")


class Environment(ABC):
    """Plays episodes. A worker process makes it, ``target(options)``, or ``target()`` if it has no options."""

    environment: str = ""
    """See ``EnvironmentSpec``."""
    deterministic: bool = False
    """See ``EnvironmentSpec``."""
    episodes_per_process: int = 1
    """How many episodes one process may play at the same time."""

    @classmethod
    def rows(cls, name: str) -> Iterable[Mapping[str, Any]]:
        """Return the rows that ``-d env:ENVIRONMENT:NAME`` reads, each with ``messages`` and columns that JSON can represent. Since 2.0."""
        raise DataError(f"environment {cls.__name__} has no rows of its own, so none of the name {name!r}; name a file with -d")

    @abstractmethod
    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult | float | None:
        """Play one episode and return its result, or only its reward.

        :param row: the columns of the data row, and its ``messages`` as a list of plain dicts.
        """


class TurnEnvironment(Environment):
    """An environment that answers each message of the policy. One instance plays one episode at a time."""

    tools: Sequence[Mapping[str, Any]] = ()
    """Schemas of tools that the policy may call, as in OpenAI's API. ``step`` finds the calls in the message's ``tool_calls``."""

    @abstractmethod
    def reset(self, row: Mapping[str, Any]) -> str | list[dict[str, Any]]:
        """Begin an episode, and return its first messages. A text is one message of the user."""

    @abstractmethod
    def step(self, answer: Mapping[str, Any]) -> tuple[str | list[dict[str, Any]], float, bool]:
        """Take the policy's message. Return the next messages, the reward of this turn, and whether the episode is over."""

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        raise TypeError(f"{type(self).__name__} has reset and step, which rlcore calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCommand:
    """A program that plays episodes, and reads and writes JSON lines.

    ``python``: the folder of a virtual environment, whose programs come first on PATH; None: that of the run.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    python: Path | None = None


class ProgramEnvironment(Environment):
    """An environment that is a program of its own, in any language. ``play`` is never called."""

    @abstractmethod
    def command(self) -> ProgramCommand:
        """Return the command that starts one process."""

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        raise TypeError(f"{type(self).__name__} is a program, which plays in a process of its own")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEnvironment:
    """The environment of a run. ``payload`` is the pickled class of an unpackaged one, None for a packaged one."""

    name: str
    owner: str
    spec: EnvironmentSpec
    payload: bytes | None
    options: Any
