"""The two rewards: the questions to the model for a response, and the value of its replies."""

from __future__ import annotations

import asyncio
import json
import os
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rlcore.api import AsyncReward, Outcome, PluginError, RewardInput, Score
from rlcore_plugin_judge.chat_service import JudgeBusyError, ask
from rlcore_plugin_judge.judge_options import AskOptions, JudgeOptions, PairwiseOptions
from rlcore_plugin_judge.kept_replies import JudgeFolder, Spent
from rlcore_plugin_judge.questions import JudgeReplyError, absolute_question, mark_of, pairwise_question, read_object

__all__ = ["LlmJudge", "LlmPairwise"]

_CHARS_OF_A_TOKEN = 2  # an estimate for tokens that the service has not counted: rather too many than too few
_VerdictT = TypeVar("_VerdictT")


class _Asking(AsyncReward):
    """Asks the model. A service that does not answer, or is busy, is ``infra`` after the retries. A reply that is not a verdict, a refusal,
    and a spent budget are ``error``. None of them is a value."""

    def __init__(self, options: AskOptions) -> None:
        self._asked = options
        self.concurrency, self.retries = options.calls_at_once, options.retries
        self.rate_limit = options.calls_per_second or None
        self.requires = options.columns
        self._key = ""
        self._not_before = 0.0  # monotonic clock: the service has asked all clients to wait until then

    def open(self) -> None:
        """Raise PluginError if the environment variable with the key is not set."""
        options = self._asked
        limits = Spent(calls=options.max_calls, tokens=options.max_total_tokens, cost=options.max_cost)
        self._kept = JudgeFolder(Path(options.folder).expanduser() if options.folder else None, limits)
        self._under_way: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        if options.api_key_env:
            self._key = os.environ.get(options.api_key_env, "").strip()  # a file from which it was read ends with a line break
            if not self._key:
                raise PluginError(f"api_key_env names {options.api_key_env}, which is not set in the environment of this process")
            if not (self._key.isascii() and self._key.isprintable()):  # otherwise an error of the sender would contain the key
                raise PluginError(f"the key in {options.api_key_env} contains a character that is not allowed in a header; set it again")

    async def open_async(self) -> None:
        """Open the reward if ``score`` alone, which makes its own loop, did not call ``open``."""
        if not hasattr(self, "_kept"):
            self.open()

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Return which columns for the model the row lacks; None if it has all."""
        missing = [name for name in self.requires if columns.get(name) is None]
        return f"the judge needs the column {' and '.join(missing)}, which the row lacks" if missing else None

    def notice(self) -> str:
        """Return the name of the judge and the spending so far."""
        options, spent = self._asked, self._kept.total()
        budget = f", {spent.calls} requests and {spent.tokens} tokens were spent in {options.folder}" if options.folder else ""
        return f"{options.model} at {options.url} judges{budget}"

    async def score_async(self, item: RewardInput) -> Score:
        found = self._asked.extract.find(item.text)
        if not found.answer:
            return self._score(0.0, Outcome.MALFORMED, found.reason or "there is no answer")
        if len(found.answer) > self._asked.max_chars:
            limit = f"limit: the answer has {len(found.answer)} characters, more than {self._asked.max_chars}"
            return self._score(0.0, Outcome.WRONG, limit)
        shown = {name: _text(item.columns[name]) for name in self._asked.columns}
        return await self.verdict(item, _clean(found.answer), shown)

    @abstractmethod
    async def verdict(self, item: RewardInput, answer: str, shown: Mapping[str, str]) -> Score:
        """Return the score of an answer that is present and not too long."""

    async def reply(self, messages: Sequence[Mapping[str, str]], read: Callable[[str], _VerdictT]) -> _VerdictT:
        """Return the model's reply to these messages as ``read`` parses it; it is kept only if it can be parsed."""
        options = self._asked
        body = {
            "model": options.model,
            "messages": list(messages),
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
        } | options.body
        question = {"url": options.url, **body}
        async with self._under_way.setdefault(json.dumps(question, sort_keys=True), asyncio.Lock()):  # an equal request finds the reply
            wait = self._not_before - time.monotonic()
            if wait > 0 and self._kept.find(question) is None:
                await asyncio.sleep(wait)  # the deadline covers it
            try:
                return await asyncio.to_thread(self._asked_once, question, body, read)
            except JudgeBusyError as busy:
                self._not_before = max(self._not_before, time.monotonic() + min(busy.wait, options.request_seconds))
                raise

    def _asked_once(self, question: Mapping[str, Any], body: Mapping[str, Any], read: Callable[[str], _VerdictT]) -> _VerdictT:
        kept = self._kept.find(question)
        if kept is not None:
            return read(kept)
        content = self._paid(body)
        verdict = read(content)
        self._kept.keep(question, content)
        return verdict

    def _paid(self, body: Mapping[str, Any]) -> str:
        options = self._asked
        guessed = len(json.dumps(body["messages"])) // _CHARS_OF_A_TOKEN
        most = self._spent(guessed, options.max_tokens)
        self._kept.begin(most)
        spent = Spent(calls=1)
        try:
            reply = ask(options.url, body, self._key, options.request_seconds)
            guessed_reply = len(reply.content) // _CHARS_OF_A_TOKEN
            spent = self._spent(
                guessed if reply.prompt_tokens is None else reply.prompt_tokens,
                guessed_reply if reply.reply_tokens is None else reply.reply_tokens,
            )
        finally:
            self._kept.end(most, spent)
        return reply.content

    def _spent(self, prompt_tokens: int, reply_tokens: int) -> Spent:
        cost = (prompt_tokens * self._asked.price_in + reply_tokens * self._asked.price_out) / 1e6
        return Spent(calls=1, tokens=prompt_tokens + reply_tokens, cost=cost)

    def _score(self, share: float, outcome: Outcome, reason: str, parsed: str | None = None) -> Score:
        """Return a score; ``share`` is that of the best verdict, 0 to 1."""
        value = share * self._asked.correct_score
        return Score(value=value, accuracy=share, format_ok=outcome is not Outcome.MALFORMED, outcome=outcome, reason=reason, parsed=parsed)


class LlmJudge(_Asking):
    """A mark; its share of the scale is the accuracy, and times ``correct_score`` the value."""

    def __init__(self, options: JudgeOptions) -> None:
        super().__init__(options)
        self.options = options

    async def verdict(self, item: RewardInput, answer: str, shown: Mapping[str, str]) -> Score:
        options = self.options
        scale = (options.lowest, options.highest)

        def read(content: str) -> tuple[float, str]:
            found = read_object(content)
            return mark_of(found, *scale), str(found.get("reason", ""))

        mark, reason = await self.reply(absolute_question(item.messages, answer, shown, options.rubric, scale), read)
        share = (mark - options.lowest) / (options.highest - options.lowest)
        return self._score(share, Outcome.OK if share > 0 else Outcome.WRONG, reason, f"{mark:g}")


class LlmPairwise(_Asking):
    """1 if the response is better than the reference, 0 if the reference is better, 0.5 for a tie or if the two orders contradict each
    other."""

    def __init__(self, options: PairwiseOptions) -> None:
        super().__init__(options)
        self.options = options
        self.requires = (*options.columns, options.reference)

    async def verdict(self, item: RewardInput, answer: str, shown: Mapping[str, str]) -> Score:
        options = self.options
        reference = _text(item.columns[options.reference])
        orders = [(answer, reference), (reference, answer)][: 2 if options.both_orders else 1]
        questions = [pairwise_question(item.messages, *order, shown, options.rubric) for order in orders]
        replies = await asyncio.gather(*(self.reply(question, _better) for question in questions))
        wins = [{"A": 1.0, "B": 0.0, "tie": 0.5}[better] for better, _ in replies]
        shares = [win if number == 0 else 1.0 - win for number, win in enumerate(wins)]
        share = shares[0] if len(set(shares)) == 1 else 0.5
        said = " / ".join(reason for _, reason in replies)
        return self._score(share, Outcome.OK if share > 0 else Outcome.WRONG, said, " ".join(better for better, _ in replies))


def _better(content: str) -> tuple[str, str]:
    found = read_object(content)
    better = found.get("better")
    if better not in ("A", "B", "tie"):
        raise JudgeReplyError(f'better is {better!r}; it must be "A", "B" or "tie"')
    return str(better), str(found.get("reason", ""))


def _text(value: Any) -> str:
    return _clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _clean(text: str) -> str:
    """Return the text without halves of surrogate pairs, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
