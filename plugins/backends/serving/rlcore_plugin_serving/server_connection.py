"""One server as its producer knows it: what it is, whether it can be asked, and which versions of the weights it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import uuid4

from rlcore.api import ConfigError, Sampling
from rlcore_plugin_serving.dialect import Dialect, LabelSpan, ServerMessage
from rlcore_plugin_serving.server_client import MALFORMED_RESPONSE, ServerAnswerError, ServerClient, ServerGoneError
from rlcore_plugin_serving.serving_engine import EngineRequest
from rlcore_plugin_serving.sglang_dialect import SglangServer
from rlcore_plugin_serving.vllm_dialect import VllmServer

__all__ = ["ServerConnection"]

_KINDS: tuple[type[Dialect], ...] = (VllmServer, SglangServer)
_CONTEXTS = 7
"""Contexts of one token, from all over the vocabulary, that show of which distribution log probabilities are."""
_CERTAIN = 1e-3
"""The one token that is left of a distribution has log probability 0. A model that is sure after most single tokens is none, and where
the likeliest tokens are equally likely, as after padding that is all zeros, more than one is left."""


class ServerConnection:
    """``healthy``: it may be asked; else ``why`` says why not. ``running``: how many answers it is asked for now; ``slots``: of
    them at a time."""

    def __init__(self, line: ServerClient, connections: int) -> None:
        self.line = line
        self.slots = asyncio.Semaphore(connections)
        self.dialect: Dialect
        self.healthy, self.why = False, "it was not reached yet"
        self.running = 0
        self.served: list[tuple[str, int]] = []
        """Label and version of all weights that it was given, in order; first what it had when the engine began."""

    @property
    def address(self) -> str:
        """Where it is."""
        return self.line.address

    @property
    def label(self) -> str:
        """Of the weights that it serves; "" if it was given none."""
        return self.served[-1][0] if self.served else ""

    async def meet(self, *, max_tokens: int, vocabulary: int) -> str:
        """Learn what it is, and the label of its weights, which is returned; from here on it can be asked. ServerGoneError if it is not
        there yet; ConfigError, in one sentence, if it cannot do what a producer needs."""
        try:
            await self.line.order("GET", "/health", tries=1)
            self.dialect = await self._recognised()
            self.dialect.vocabulary = vocabulary
            facts = await self.dialect.learn()
            if facts.max_tokens < max_tokens:
                self._refuse(f"takes {facts.max_tokens} tokens of prompt and answer together, and the run asks for {max_tokens}")
            await self._require_vocabulary(vocabulary)
            await self._require_drawn_logprobs(vocabulary)
            label = await self.dialect.label()
        except ServerAnswerError as error:
            raise self._refused(error) from error
        except MALFORMED_RESPONSE as error:
            self._refuse(f"answers otherwise than a {self.dialect.kind} server that is known ({type(error).__name__}: {error})")
        self.served.clear()
        self.healthy, self.why = True, ""
        return label

    def versions_of(self, spans: Sequence[LabelSpan], since: int) -> list[int]:
        """The version of each token of an answer that was asked for when ``since`` labels had been given, the last of them then served.
        ServerGoneError for another label: a server that was started anew serves what it was started with."""
        known = dict(self.served[max(0, since - 1) :])
        for span in spans:
            if span.label not in known:
                raise ServerGoneError(
                    f"it answers with weights {span.label!r} where {self.label!r} are served: it was started anew, or others update it"
                )
        return [known[span.label] for span in spans for _ in range(span.count)]

    def lose(self, why: str) -> None:
        """It is not asked again before it has been met anew."""
        if self.healthy:
            self.healthy, self.why = False, why

    async def _recognised(self) -> Dialect:
        for kind in _KINDS:
            if await kind.recognises(self.line):
                return kind(self.line)
        raise ConfigError(
            f"{self.address} is neither a vLLM nor an SGLang server (no /version, no /model_info of theirs); name one in "
            "inference.options.addresses"
        )

    async def _require_vocabulary(self, vocabulary: int) -> None:
        if not await self.dialect.knows_token(vocabulary - 1):
            self._refuse(f"knows fewer tokens than the {vocabulary} of the run's model; start it with the run's --model")
        if await self.dialect.knows_token(vocabulary):
            self._refuse(f"knows more tokens than the {vocabulary} of the run's model; start it with the run's --model")

    async def _require_drawn_logprobs(self, vocabulary: int) -> None:
        """Of one token that is left, the log probability is 0, unless the server tells that of another distribution."""
        certain = 0
        for place in range(_CONTEXTS):
            sampling = Sampling(max_new_tokens=1, temperature=1.0, top_k=1)
            token = place * vocabulary // _CONTEXTS
            ask = EngineRequest(name="", token_ids=(token,), sampling=sampling, seed=1, max_tokens=1, stop_token_ids=())
            if self.dialect.unsupported(ask):
                return
            answer = await self._one_token(f"rlcore-look-{uuid4().hex[:8]}-{place}", ask)
            certain += abs(answer.logprobs[0]) < _CERTAIN
        if certain <= _CONTEXTS // 2:
            self._refuse("tells log probabilities of another distribution than the one that it samples from")

    async def _one_token(self, ident: str, ask: EngineRequest) -> ServerMessage:
        path, body = self.dialect.question(ident, ask)
        heard = ServerMessage()
        try:
            async with asyncio.timeout(self.line.silence), self.line.stream(path, body) as messages:
                async for message in messages:
                    part = self.dialect.heard(ask, message, len(heard.tokens))
                    heard = part if part.tokens else heard
        except TimeoutError as error:
            raise ServerGoneError(f"it did not answer with a token for {self.line.silence:g} s") from error
        if not heard.tokens:
            raise ServerGoneError("it ended an answer without a token")
        return heard

    def _refused(self, error: ServerAnswerError) -> Exception:
        if error.status in (401, 403):
            return ConfigError(
                f"{self.address} refuses the key ({error}); name the variable that holds it in inference.options.api_key_env, and set it "
                "wherever producers run"
            )
        if error.status == 503:
            return ServerGoneError(str(error))  # it is still loading
        if not hasattr(self, "dialect"):
            return ConfigError(f"{self.address} answers as no inference server does: {error}")
        if error.status == 404:
            return ConfigError(self._sentence(f"takes no token ids ({error})"))
        return ConfigError(self._sentence(f"does not answer ({error})"))

    def _refuse(self, why: str) -> None:
        raise ConfigError(self._sentence(why))

    def _sentence(self, why: str) -> str:
        return f"the {self.dialect.kind} server {self.address} {why}; start it so: {self.dialect.start_hint}"
