"""One server as its producer knows it: its kind, whether it accepts requests, and the versions of the weights that it was given."""

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
"""The number of one-token contexts, spread over the vocabulary, that test which distribution the log probabilities belong to."""
_CERTAIN = 1e-3
"""If one token is left of a distribution, its log probability is 0. A model is almost never certain after a single token. If the
likeliest tokens are equally likely, as after padding whose weights are all zeros, more than one is left."""


class ServerConnection:
    """``healthy``: the server accepts requests; otherwise ``why`` gives the reason.

    ``running``: the number of its answers in progress; ``slots``: limits the number of requests at a time.
    """

    def __init__(self, line: ServerClient, connections: int) -> None:
        self.line = line
        self.slots = asyncio.Semaphore(connections)
        self.dialect: Dialect
        self.healthy, self.why = False, "it was not reached yet"
        self.running = 0
        self.served: list[tuple[str, int]] = []
        """Label and version of all weights that it was given, in order; the first are those that it had when the engine began."""

    @property
    def address(self) -> str:
        """The address of the server."""
        return self.line.address

    @property
    def label(self) -> str:
        """The label of the weights that it serves; "" if it was given none."""
        return self.served[-1][0] if self.served else ""

    async def meet(self, *, max_tokens: int, vocabulary: int) -> str:
        """Learn the server's kind and facts, and return the label of its weights; from now on it accepts requests.

        Raises ServerGoneError if it is not reachable yet, and ConfigError, in one sentence, if it lacks a feature that a producer needs.
        """
        try:
            await self.line.order("GET", "/health", tries=1)
            self.dialect = await self._recognised()
            self.dialect.vocabulary = vocabulary
            facts = await self.dialect.learn()
            if facts.max_tokens < max_tokens:
                self._refuse(f"takes {facts.max_tokens} tokens of prompt and answer together, but the run needs {max_tokens}")
            await self._require_vocabulary(vocabulary)
            await self._require_drawn_logprobs(vocabulary)
            label = await self.dialect.label()
        except ServerAnswerError as error:
            raise self._refused(error) from error
        except MALFORMED_RESPONSE as error:
            self._refuse(f"does not answer like a known {self.dialect.kind} server ({type(error).__name__}: {error})")
        self.served.clear()
        self.healthy, self.why = True, ""
        return label

    def versions_of(self, spans: Sequence[LabelSpan], since: int) -> list[int]:
        """Return the version of each token of an answer that was requested when ``since`` labels had been given, the last of which was then
        served.

        Raises ServerGoneError for another label: a restarted server serves the weights that it was started with.
        """
        known = dict(self.served[max(0, since - 1) :])
        for span in spans:
            if span.label not in known:
                raise ServerGoneError(
                    f"it answers with weights {span.label!r}, but {self.label!r} are served: it was restarted, or others update it"
                )
        return [known[span.label] for span in spans for _ in range(span.count)]

    def lose(self, why: str) -> None:
        """Mark the server as unhealthy. It receives no requests before the next ``meet``."""
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
        """Refuse a server that reports log probabilities of another distribution. If one token is left, its log probability must be 0."""
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
            self._refuse("reports log probabilities of another distribution than the one that it samples from")

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
            return ConfigError(f"{self.address} does not answer like an inference server: {error}")
        if error.status == 404:
            return ConfigError(self._sentence(f"takes no token ids ({error})"))
        return ConfigError(self._sentence(f"does not answer ({error})"))

    def _refuse(self, why: str) -> None:
        raise ConfigError(self._sentence(why))

    def _sentence(self, why: str) -> str:
        return f"the {self.dialect.kind} server {self.address} {why}; start it with: {self.dialect.start_hint}"
