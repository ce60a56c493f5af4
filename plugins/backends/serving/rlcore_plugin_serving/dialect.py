"""What two kinds of server say differently: the words for a request, an order, an answer."""

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
    """What a server says of itself. ``max_tokens``: that prompt and answer may take together; ``takes_weights``: orders for that are open;
    ``seeds``: a draw depends on the seed of its request, whatever else runs; ``dtype``: of its weights, "" if it does not say."""

    max_tokens: int
    takes_weights: bool
    seeds: bool
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class LabelSpan:
    """So many tokens of an answer, in order, were drawn under the weights that the server calls ``label``."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """One message of an answer. ``finish``: "" while it goes on; ``labels``: of the whole answer, with its last message."""

    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    finish: str = ""
    labels: tuple[LabelSpan, ...] = ()


class Dialect(ABC):
    """One kind of server, behind one line. Its methods raise what the line raises: ServerGoneError, ServerAnswerError."""

    kind: str
    """Its name in a sentence."""
    start_hint: str
    """What to type so that a server of this kind does all that is asked of it."""
    transfers: frozenset[str] = frozenset({"host"})
    """Ways by which it can be given weights, as ``InferenceCapabilities.transfers`` names them."""
    keeps: bool
    """Whether requests stay in the server while weights are written; else they must be dropped before and asked for again."""

    def __init__(self, line: ServerClient) -> None:
        self.line = line
        self.facts: ServerInfo
        self.vocabulary = 0
        """Tokens of the model, as the run knows it; set before ``learn``."""

    @classmethod
    @abstractmethod
    async def recognises(cls, line: ServerClient) -> bool:
        """Whether the server is of this kind."""

    @abstractmethod
    async def learn(self) -> ServerInfo:
        """Ask the server what it is, and keep it as ``facts``."""

    @abstractmethod
    async def label(self) -> str:
        """What the server calls the weights that it serves."""

    @abstractmethod
    def question(self, ident: str, ask: EngineRequest) -> tuple[str, object]:
        """Path and body of a request whose answer is a stream."""

    @abstractmethod
    def heard(self, ask: EngineRequest, message: object, before: int) -> ServerMessage:
        """A message of the stream, of an answer to ``ask`` that had so many tokens before. ServerGoneError for one that makes no sense."""

    @abstractmethod
    def unsupported(self, ask: EngineRequest) -> str:
        """What of the request this server would draw otherwise than asked; "" if nothing."""

    @abstractmethod
    async def knows_token(self, token: int) -> bool:
        """Whether the server's vocabulary has it."""

    @abstractmethod
    async def drop(self, idents: Iterable[str]) -> None:
        """End these requests; their streams end with what they have. Unknown ones are passed over."""

    @abstractmethod
    async def score(self, ident: str, token_ids: Sequence[int]) -> tuple[np.ndarray, str]:
        """float32[T-1] at temperature 1, with nothing of a cache, and the label of the weights that it is by."""

    # --- weights -------------------------------------------------------------------------------------------------------

    @abstractmethod
    async def pause(self) -> None:
        """Nothing is computed until ``resume``. Twice is once."""

    @abstractmethod
    async def load(self, folder: str, label: str) -> None:
        """Write the weights in a folder, as the server sees it, over its own, and call them so."""

    @abstractmethod
    async def resume(self) -> None:
        """Go on, with no key or value of older weights."""

    @abstractmethod
    async def checksums(self) -> dict[str, str]:
        """What the server's own checker takes of its weights: name -> digest; {} if it has none."""

    async def ranks(self) -> int:
        """How many workers the server has; of one that takes weights otherwise than from the host."""
        raise NotImplementedError(f"{self.kind} servers take weights from the host alone")

    async def carry_out(self, method: str, words: Mapping[str, Any], label: str) -> Any:
        """An order of a transfer of vLLM's own (``joined_transfer``); after the last one the weights have the label."""
        raise NotImplementedError(f"{self.kind} servers take weights from the host alone")
