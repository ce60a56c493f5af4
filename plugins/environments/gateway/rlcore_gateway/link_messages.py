"""What a producer and its gateway process tell each other. The first message, to the process, is a ``GatewaySetup`` in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.api import Completion, Tokenizer
from rlcore.api.sandbox import SandboxOptions
from rlcore_gateway.gateway import Ask, GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.players import EpisodeDraws, PlayerSetup
from rlcore_gateway.trained import LedgerResult
from rlcore_gateway.worker_lines import EpisodeEnd
from rlcore_gateway.worker_process import WorkerCommand

__all__ = [
    "Alive",
    "Answered",
    "Asked",
    "Begun",
    "CalledTools",
    "Cut",
    "Ended",
    "EpisodeReport",
    "Failed",
    "GatewaySetup",
    "Opened",
    "Said",
    "Withdrawn",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySetup:
    """How a gateway process serves and plays.

    ``workers``: the largest number of processes that play. ``deadline``: seconds of one episode.
    ``cancel_seconds``: a process that does not end a cancelled episode in this time is killed.
    ``sandbox``: the sandbox in which they play, by sessions of ``command.session``; None: without one.
    ``players``: those of each episode, (): only the policy, without a name.
    """

    tokenizer: Tokenizer
    settings: GatewaySettings
    command: WorkerCommand
    workers: int
    deadline: float
    cancel_seconds: float = 5.0
    sandbox: SandboxOptions | None = None
    players: tuple[PlayerSetup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeReport:
    """How an episode ended, and what of it trains; ``result`` is None if nothing of it can be used.

    ``milliseconds``: the time that each of its calls took beyond the engine.
    """

    end: EpisodeEnd
    result: LedgerResult | None = None
    milliseconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """To the process: play this episode. ``attempt`` counts the processes that were asked to. ``draws``: for frozen players."""

    episode: str
    attempt: int
    row: Mapping[str, Any]
    limits: EpisodeLimits
    draws: EpisodeDraws | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """To the process: the completion of a call. ``seconds``: the time that the producer and its engine took."""

    call: str
    completion: Completion
    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """To the process: nobody needs this episode any more."""

    episode: str


@dataclass(frozen=True, slots=True)
class Asked:
    """To the producer: an episode needs tokens."""

    episode: str
    ask: Ask


@dataclass(frozen=True, slots=True)
class Begun:
    """To the producer: a process plays an episode now, which waited for one before."""

    episode: str


@dataclass(frozen=True, slots=True)
class CalledTools:
    """To the producer: the last answer called tools, which the episode now runs."""

    episode: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """To the producer: nobody waits for this call any more."""

    episode: str
    call: str


@dataclass(frozen=True, slots=True)
class Ended:
    """To the producer: an episode is over."""

    episode: str
    report: EpisodeReport


@dataclass(frozen=True, slots=True)
class Said:
    """To the producer: a warning for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """To the producer: the run must end. ``defect``: by a fault of the gateway process, and not of the environment."""

    text: str
    defect: bool = False


@dataclass(frozen=True, slots=True)
class Alive:
    """To the producer: the process is not stopped. Sent every second."""
