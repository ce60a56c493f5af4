"""The ledger of an episode: a tree of calls that keeps the tokens as they were sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any, Literal

import numpy as np

from rlcore.api import Completion, FinishReason, Message
from rlcore_gateway.chat_messages import chains, key_of, start_of, tools_key
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.rendering import ChatRenderer, Tools
from rlcore_gateway.trained import LedgerResult, result_of

__all__ = ["EpisodeLedger", "EpisodeLimits", "History", "LedgerCall"]

History = Literal["as_sampled", "template"]
"""Whether earlier answers stay as they were sampled, or as the chat template renders them (without thinking, for many templates)."""

_CHATS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """The budget of an episode.

    ``tokens``: sampled tokens of all calls. Calls that are open at the same time may exceed it together.
    ``context``: context and answer of any call. ``calls``: None for no limit.
    ``answer``: sampled tokens of one call, None for no limit beside the others.
    ``stop``: the stop strings of the run, which end every answer.
    """

    tokens: int
    context: int
    calls: int | None = None
    answer: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class LedgerCall:
    """A request and its answer. Tokens and messages are those that it added to its parent.

    ``messages``: the messages after the parent's answer; all messages if there is no parent.
    ``tail_ids``: int32, the tokens between the parent's answer and this one.
    ``sampling``: what a repeated request must have in common with this one, beside messages and tools.
    ``noise``: the random stream. It depends on what was said and on the number of equal requests, not on the order of arrival.
    """

    id: str
    number: int
    parent: LedgerCall | None
    messages: tuple[Message, ...]
    tail_ids: np.ndarray
    chain: bytes
    sampling: tuple[Any, ...]
    ordinal: int
    noise: int
    max_new_tokens: int
    bound: str
    """The limit that sets ``max_new_tokens``: "tokens", "context", or "" if the client set it."""
    player: str = ""
    context_length: int = 0
    """The number of tokens before the answer."""
    children: list[LedgerCall] = field(default_factory=list)
    canned: list[str] = field(default_factory=list)
    """The ids of the answers beyond the budget that came after its own."""
    completion: Completion | None = None
    answer: Message | None = None
    """The answer as the chat template reads it: with its reasoning, and without the text of parsed tool calls."""
    awaited: int = 0
    """The number of requests to which its answer is on its way."""
    delivered: bool = False
    repeats: int = 0
    """How often a client asked again for its answer, though it was delivered."""
    extended: bool = False
    dropped: bool = False

    @property
    def read(self) -> bool:
        """Whether a client has the answer, as far as the gateway can know."""
        return self.delivered or self.extended

    def path(self) -> list[LedgerCall]:
        """Return the calls from the root to this one."""
        found, call = [self], self.parent
        while call is not None:
            found.append(call)
            call = call.parent
        return found[::-1]

    @property
    def sampled_ids(self) -> np.ndarray:
        """int32: the sampled tokens; none while the call is open."""
        return self.tail_ids[:0] if self.completion is None else self.completion.token_ids

    def context_ids(self) -> np.ndarray:
        """Return int32[C]: everything before the answer."""
        *before, last = self.path()
        return np.concatenate([*(ids for call in before for ids in (call.tail_ids, call.sampled_ids)), last.tail_ids])

    def said(self) -> list[Message]:
        """Return all messages, from the first of the root to this answer."""
        return [message for call in self.path() for message in (*call.messages, *([call.answer] if call.answer else []))]


_Place = tuple[LedgerCall | None, Sequence[Message], np.ndarray]
"""The parent of a request, the messages that it adds, and their tokens."""


class EpisodeLedger:
    """All calls of one episode. Not thread-safe: the gateway's event loop owns it."""

    def __init__(self, episode: str, renderer: ChatRenderer, limits: EpisodeLimits, history: History = "as_sampled") -> None:
        self.episode, self.limits, self.history = episode, limits, history
        self.calls: list[LedgerCall] = []
        """The calls that were not dropped, in the order of arrival."""
        self.counts: Counter[str] = Counter()
        self.exhausted = ""
        self.refused = False
        """Whether the last request was refused because a budget is used up."""
        self._cancelled: Counter[tuple[bytes, tuple[Any, ...]]] = Counter()
        self.tokens = 0
        """The number of sampled tokens."""
        self._renderer = renderer
        self._hashed: list[tuple[bytes, tuple[Message, ...], list[bytes]]] = []
        """The last chats, the latest first: where their hashes start, their messages, and a hash for each of their beginnings."""
        self._numbers = count(1)
        self._asked: dict[bytes, list[LedgerCall]] = {}
        self._ends: dict[bytes, list[LedgerCall]] = {}
        """Calls by the chain of everything that was said, including their answer."""

    @property
    def roots(self) -> list[LedgerCall]:
        """The calls without a parent."""
        return [call for call in self.calls if call.parent is None]

    def begin(
        self,
        messages: Sequence[Message],
        tools: Tools = (),
        *,
        max_tokens: int | None = None,
        sampling: tuple[Any, ...] = (),
        retry: bool = False,
        player: str = "",
        after: LedgerCall | None = None,
    ) -> LedgerCall:
        """Return the call for a request: a new one, or the one that a client repeats.

        :param max_tokens: the client's limit of the answer.
        :param sampling: what else a repeated request must have in common with the first.
        :param retry: the client says that it repeats the request.
        :param player: the name of who asks. Players share the budget, and no call.
        :param after: the call that the request names as the one which it continues; it is not another one with an equal answer.
        :raises Refusal: a budget is used up, or the context is too long.
        """
        chain = self._chain(start_of(player, tools_key(tools)), tuple(messages))
        alike = (max_tokens, *sampling, after and after.id)
        return self._opened(chain[-1], lambda: self._place(messages, tools, chain, after), alike, retry, player)

    def begin_ids(
        self,
        token_ids: np.ndarray,
        read: Callable[[np.ndarray], Sequence[Message]],
        *,
        max_tokens: int | None = None,
        sampling: tuple[Any, ...] = (),
        retry: bool = False,
        player: str = "",
    ) -> LedgerCall:
        """Return the call for a request that gives its context as tokens. It continues the call whose tokens they begin with.

        :param token_ids: int32[C], the whole context.
        :param read: returns the messages that tokens contain.
        :raises Refusal: see ``begin``.
        """
        chain = chains(start_of(player, b"token_ids"), [np.ascontiguousarray(token_ids, np.int32).tobytes()])[-1]
        return self._opened(chain, lambda: self._place_ids(token_ids, read, player), (max_tokens, *sampling), retry, player)

    def _opened(self, chain: bytes, place: Callable[[], _Place], sampling: tuple[Any, ...], retry: bool, player: str) -> LedgerCall:
        """Return the call of a request. The first value of ``sampling`` is the client's limit of the answer."""
        if (repeated := self._repeated(chain, sampling, retry)) is not None:
            self.counts["retries"] += 1
            return repeated
        self._check_budget()
        parent, added, ids = place()
        context = len(ids) + (parent.context_length + len(parent.sampled_ids) if parent else 0)
        most, bound = self._room(context, sampling[0])
        self.refused = False
        taken = {call.ordinal for call in self._asked.get(chain, ())}
        ordinal = next(number for number in count() if number not in taken)
        number = next(self._numbers)
        call = LedgerCall(
            id=f"chatcmpl-{self.episode}-{number}",
            number=number,
            parent=parent,
            messages=tuple(added),
            tail_ids=ids,
            chain=chain,
            sampling=sampling,
            ordinal=ordinal,
            noise=_noise(chain, ordinal),
            max_new_tokens=most,
            bound=bound,
            player=player,
            context_length=context,
        )
        self.calls.append(call)
        self._asked.setdefault(chain, []).append(call)
        if parent is not None:
            parent.children.append(call)
            parent.extended = True
        return call

    def last_call(
        self, messages: Sequence[Message], tools: Tools = (), *, player: str = "", after: LedgerCall | None = None
    ) -> LedgerCall | None:
        """Return the call that a request would continue; None if it would begin a chat. See ``begin``."""
        return self._extended(messages, self._chain(start_of(player, tools_key(tools)), tuple(messages)), after)[0]

    def last_call_ids(self, token_ids: np.ndarray, player: str = "") -> LedgerCall | None:
        """Return what ``last_call`` does, for a request that gives its context as tokens."""
        return self._place_ids(token_ids, lambda ids: (), player)[0]

    def finish(self, call: LedgerCall, completion: Completion, answer: Message, sent: Message) -> None:
        """Keep the answer of a call. Nothing happens if the call was dropped.

        :param answer: the answer as the chat template reads it.
        :param sent: the answer as the client received it, and sends it back.
        """
        if call.dropped:
            return
        call.completion, call.answer = completion, answer
        self.tokens += len(completion.token_ids)
        if completion.finish is FinishReason.LENGTH and call.bound:
            self.exhausted = self.exhausted or call.bound
        forms = [sent]
        if sent.tool_calls and sent.content:  # some clients drop the text beside tool calls; the ids are enough to recognize them
            forms.append(Message(role=sent.role, content="", tool_calls=sent.tool_calls))
        for form in forms:
            self._ends.setdefault(chains(call.chain, [key_of(form)])[-1], []).append(call)

    def drop(self, call: LedgerCall) -> None:
        """Forget a call that was cancelled: its tokens never train. A second call does nothing."""
        if call.dropped or call.completion is not None:
            return
        call.dropped = True
        self.counts["cancelled"] += 1
        self.calls.remove(call)
        self._asked[call.chain].remove(call)
        self._cancelled[call.chain, call.sampling] += 1
        if call.parent is not None:
            call.parent.children.remove(call)

    def trained(self, calls: Sequence[str] | None = None) -> LedgerResult:
        """Return what trains.

        :param calls: the ids of the calls that train; None for those of the main root of each player, which has the most sampled tokens,
            and of the roots that share its first user message.
        :raises ValueError: an id is not that of an answered call.
        """
        return result_of(self.calls, calls, self.counts, self.exhausted)

    def _chain(self, start: bytes, messages: tuple[Message, ...]) -> list[bytes]:
        """Return ``chains`` of the messages. What an earlier request began with is not hashed again."""
        found = next((one for one in self._hashed if one[0] == start and messages[: len(one[1])] == one[1]), None)
        _, before, known = found or (start, (), [start])
        chain = known + chains(known[-1], map(key_of, messages[len(before) :]))[1:]
        self._hashed = [(start, messages, chain), *(one for one in self._hashed if one is not found)][:_CHATS]
        return chain

    def _repeated(self, chain: bytes, sampling: tuple[Any, ...], retry: bool) -> LedgerCall | None:
        """Return the call that this request repeats. A call that was extended is not repeated, because its answer has arrived.

        Of several equal calls, it is the oldest whose answer did not arrive, or else the oldest that was repeated least.
        """
        same = [call for call in self._asked.get(chain, ()) if call.sampling == sampling and not call.extended]
        lost = [call for call in same if call.completion is not None and not call.delivered and not call.awaited]
        if lost:
            return lost[0]
        if retry and self._cancelled[chain, sampling]:  # it repeats the one that was cancelled, and not an equal one beside it
            self._cancelled[chain, sampling] -= 1
            return None
        if not retry or not same:
            return None
        found = min(same, key=lambda call: call.repeats)
        found.repeats += 1
        return found

    def _check_budget(self) -> None:
        most = self.limits.calls
        if most is not None and len(self.calls) >= most:
            self._refuse("calls", f"the episode has used up its budget of {most} calls; end the episode")
        if self.tokens >= self.limits.tokens:
            self._refuse("tokens", f"the episode has used up its budget of {self.limits.tokens} sampled tokens; end the episode")

    def _room(self, context: int, max_tokens: int | None) -> tuple[int, str]:
        """Return the most tokens that may be sampled after a context, and the limit that says so."""
        room = self.limits.context - context
        if room < 1:
            self._refuse(
                "context",
                f"This model's maximum context length is {self.limits.context} tokens. However, your messages resulted in {context} "
                "tokens, and the answer needs at least one. Please reduce the length of the messages.",
                code="context_length_exceeded",
                param="messages",
            )
        bounds = [(most, "") for most in (max_tokens, self.limits.answer) if most is not None]
        # The caller's own limit is first: an answer that reaches it and a budget together is not cut by the budget.
        return min([*bounds, (room, "context"), (self.limits.tokens - self.tokens, "tokens")], key=lambda bound: bound[0])

    def _refuse(self, what: str, message: str, code: str = "budget_exhausted", param: str | None = None) -> None:
        self.exhausted, self.refused = self.exhausted or what, True
        raise Refusal(message, code=code, param=param)

    def _place_ids(self, ids: np.ndarray, read: Callable[[np.ndarray], Sequence[Message]], player: str) -> _Place:
        """Return the place of a context below the call with the longest history, as ``_extended`` finds it for messages."""
        found: list[tuple[int, LedgerCall]] = []
        todo = [(root, 0) for root in self.roots if root.player == player]
        while todo:
            call, begin = todo.pop()
            end = begin + len(call.tail_ids) + len(call.sampled_ids)
            if call.completion is not None and np.array_equal(ids[begin:end], np.concatenate([call.tail_ids, call.sampled_ids])):
                found.append((end, call))
                todo += [(child, end) for child in call.children]
        order = (((end, call.read, -len(call.children), -call.number), call) for end, call in found)
        (end, *_), parent = max(order, default=((0,), None))
        added = read(ids[end:])
        return parent, added if added or parent else [Message(role="user", content="")], ids[end:]

    def _place(self, messages: Sequence[Message], tools: Tools, chain: Sequence[bytes], after: LedgerCall | None) -> _Place:
        """Return the parent of a request, the messages that it adds, and their tokens."""
        parent, known = self._extended(messages, chain, after)
        if parent is None:
            return None, messages, self._renderer.first_chat(messages, tools)
        if self.history == "template":
            return self._template_place(parent, messages[known:], tools)
        return parent, messages[known:], self._renderer.tail(messages[known:], tools, chain[0], parent.sampled_ids)

    def _extended(self, messages: Sequence[Message], chain: Sequence[bytes], after: LedgerCall | None) -> tuple[LedgerCall | None, int]:
        """Return the call with the longest history that the messages begin with, and the number of messages in it.

        It is ``after``, if the messages begin with the history of that.
        Of several calls with equal answers, one that a client has continues first, and then the one with the fewest children.
        """
        ends = [known for known in range(len(messages), 0, -1) if messages[known - 1].role == "assistant"]
        if after is not None and (named := next((known for known in ends if after in self._ends.get(chain[known], ())), 0)):
            return after, named
        for known in ends:
            if found := self._ends.get(chain[known]):
                return min(found, key=lambda call: (not call.read, len(call.children) + len(call.canned))), known
        return None, 0

    def _template_place(self, parent: LedgerCall, added: Sequence[Message], tools: Tools) -> _Place:
        """Render the whole history. The parent is the last call whose tokens the rendered chat begins with."""
        ids = self._renderer.chat([*parent.said(), *added], tools)
        for call in reversed(parent.path()):
            before = np.concatenate([call.context_ids(), call.sampled_ids])
            if len(before) < len(ids) and np.array_equal(ids[: len(before)], before):
                return call, [*parent.said()[len(call.said()) :], *added], ids[len(before) :]
        return None, [*parent.said(), *added], ids


def _noise(chain: bytes, ordinal: int) -> int:
    return int.from_bytes(blake2b(chain, digest_size=4, salt=ordinal.to_bytes(8, "little")).digest(), "little") & 0x7FFFFFFF
