"""A scripted engine, a server around it, and a real tokenizer whose answers are tokens that a second reading of the text would not give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from openai import AsyncOpenAI
from rlcore_gateway.gateway import Ask, Gateway, GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.server import GatewayServer

from rlcore.api import Completion, FinishReason, Tokenizer
from rlcore.testing import ChatTokenizer

LIMITS = EpisodeLimits(tokens=10_000, context=20_000)
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- set content = m.content %}
{%- if m.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}
{%- set content = content.split('</think>')[-1].lstrip() %}
{%- endif %}
{{- '<|im_start|>' + m.role + '\n' + content }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@lru_cache(maxsize=1)
def real_tokenizer() -> ChatTokenizer:
    """A byte-level BPE with a ChatML template that drops earlier thinking. ``[CALL]`` is a special token."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Fast
    from transformers import PreTrainedTokenizerFast

    fast = Fast(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    specials = ["<|im_start|>", "<|im_end|>", "[CALL]"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)
    fast.train_from_iterator(["guess the number higher lower assistant user system tool think name arguments"] * 9, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<|im_end|>")
    wrapped.add_tokens([AddedToken(text, special=False) for text in ("<think>", "</think>", "<tool_call>", "</tool_call>")])
    wrapped.chat_template = TEMPLATE
    return ChatTokenizer(wrapped)


def pieces(text: str) -> list[int]:
    """The tokens of a text, one byte each: another split than the tokenizer's own. Then the end of the turn."""
    inner = real_tokenizer()._inner
    ids = [token for part in text.encode() for token in inner.encode(bytes([part]).decode("latin-1"), add_special_tokens=False)]
    return [*ids, inner.eos_token_id]


Script = Callable[[Ask], Sequence[int]]


@dataclass
class StubEngine:
    """Answers each ask with the tokens of the script, after ``gate`` opens. Log probabilities are numbers that occur once."""

    script: Script
    asked: list[Ask] = field(default_factory=list)
    answered: dict[str, Completion] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    gate: asyncio.Event | None = None
    version: int = 0

    async def generate(self, ask: Ask) -> Completion:
        self.asked.append(ask)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(ask.call)
            raise
        ids = list(self.script(ask))
        cut = len(ids) > ask.max_new_tokens
        ids = ids[: ask.max_new_tokens]
        marks = -(np.arange(len(ids), dtype=np.float32) + 1) / 64 - len(self.answered)
        finish = FinishReason.LENGTH if cut else FinishReason.STOP
        versions = np.full(len(ids), self.version)
        said = Completion(request_id=ask.call, token_ids=np.array(ids), logprobs=marks, versions=versions, finish=finish)
        self.answered[ask.call] = said
        return said


@dataclass
class Served:
    """A gateway that is served, with an open episode."""

    gateway: Gateway
    engine: StubEngine
    key: str
    base_url: str
    client: AsyncOpenAI
    others: list[AsyncOpenAI] = field(default_factory=list)

    def connect(self, key: str, **words: Any) -> AsyncOpenAI:
        """A client with another key."""
        self.others.append(AsyncOpenAI(base_url=self.base_url, api_key=key, **words))
        return self.others[-1]


@asynccontextmanager
async def serving(
    tokenizer: Tokenizer, script: Script, *, limits: EpisodeLimits = LIMITS, settings: GatewaySettings | None = None, **words: Any
) -> AsyncIterator[Served]:
    """Serve an episode on a free port. ``words``: of the client."""
    engine, server = StubEngine(script), GatewayServer()
    gateway = Gateway(tokenizer, engine.generate, settings)
    addresses = await server.start(gateway)
    key = gateway.open("game", limits)
    client = AsyncOpenAI(base_url=addresses.base_url, api_key=key, **words)
    served = Served(gateway, engine, key, addresses.base_url, client)
    try:
        yield served
    finally:
        for one in (client, *served.others):
            await one.close()
        await server.stop()
