"""The differences between two kinds of server: the wire format of a request, a command and an answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore_plugin_serving.server_client import ServerClient
from rlcore_plugin_serving.serving_engine import EngineRequest

__all__ = ["Dialect", "LabelSpan", "ServerInfo", "ServerMessage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The facts that a server reports about itself.

    ``max_tokens``: of prompt and answer together. ``takes_weights``: the server accepts commands for weights. ``seeds``: a draw depends
    only on the seed of its request, whatever else runs. ``dtype``: of its weights, "" if the server does not report it.
    """

    max_tokens: int
    takes_weights: bool
    seeds: bool
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class LabelSpan:
    """A span of ``count`` tokens of an answer, in order, drawn under the weights that the server calls ``label``."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """One message of an answer. ``finish``: "" while the answer continues; ``labels``: of the whole answer, with its last message."""

    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    finish: str = ""
    labels: tuple[LabelSpan, ...] = ()


class Dialect(ABC):
    """One kind of server, over one ``ServerClient``. Its methods raise the errors of the line: ServerGoneError, ServerAnswerError."""

    kind: str
    """Its name in a sentence."""
    start_hint: str
    """The command line that starts a server of this kind with all required features."""
    transfers: frozenset[str] = frozenset({"host"})
    """The ways to transfer weights to it, as ``InferenceCapabilities.transfers`` names them."""
    keeps: bool
    """Whether requests stay in the server while weights are written. Otherwise they must be dropped before the update and sent again
    after it."""

    def __init__(self, line: ServerClient) -> None:
        self.line = line
        self.facts: ServerInfo
        self.vocabulary = 0
        """The number of tokens of the run's model; set before ``learn``."""

    @classmethod
    @abstractmethod
    async def recognises(cls, line: ServerClient) -> bool:
        """Return whether the server is of this kind."""

    @abstractmethod
    async def learn(self) -> ServerInfo:
        """Ask the server for its facts, and keep them as ``facts``."""

    @abstractmethod
    async def label(self) -> str:
        """Return the server's label of the weights that it serves."""

    @abstractmethod
    def question(self, ident: str, ask: EngineRequest) -> tuple[str, object]:
        """Return path and body of a request whose answer is a stream."""

    @abstractmethod
    def heard(self, ask: EngineRequest, message: object, before: int) -> ServerMessage:
        """Read a message of the stream of an answer to ``ask`` that had ``before`` tokens. Raises ServerGoneError if it makes no sense."""

    @abstractmethod
    def unsupported(self, ask: EngineRequest) -> str:
        """Return the part of the request for which this server would sample differently than asked; "" if there is none."""

    @abstractmethod
    async def knows_token(self, token: int) -> bool:
        """Return whether the server's vocabulary has this token."""

    @abstractmethod
    async def drop(self, idents: Iterable[str]) -> None:
        """End these requests; their streams end with the tokens that they have. Unknown requests are ignored."""

    @abstractmethod
    async def score(self, ident: str, token_ids: Sequence[int]) -> tuple[np.ndarray, str]:
        """Return float32[T-1] at temperature 1, without any cache, and the label of the weights that gave it."""

    # --- weights -------------------------------------------------------------------------------------------------------

    @abstractmethod
    async def pause(self) -> None:
        """Stop computing until ``resume``. A second call does nothing."""

    @abstractmethod
    async def load(self, folder: str, label: str) -> None:
        """Write the weights in a folder over the server's own, and give them this label. The path is as the server sees it."""

    @abstractmethod
    async def resume(self) -> None:
        """Continue, without any key or value of older weights."""

    @abstractmethod
    async def checksums(self) -> dict[str, str]:
        """Return the digests that the server's own checker computes of its weights, by name; {} if it has no checker."""

    async def ranks(self) -> int:
        """Return the number of the server's workers; only for a server that supports a transfer other than from the host."""
        raise NotImplementedError(f"{self.kind} servers take weights from the host alone")

    async def carry_out(self, method: str, words: Mapping[str, Any], label: str) -> Any:
        """Carry out a command of a transfer of vLLM's own (``joined_transfer``); after the last one the weights have the label."""
        raise NotImplementedError(f"{self.kind} servers take weights from the host alone")
