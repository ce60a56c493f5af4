"""The conversation ``agent``: a rollout is an episode that a program plays with the policy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from rlcore_gateway.gateway import Ask, GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.link import GatewayLink, LinkedEpisode
from rlcore_gateway.link_messages import EpisodeReport, GatewaySetup
from rlcore_gateway.worker_lines import as_line

from rlcore.api import FinishReason, Message, Outcome, Prompt, RunError, Score
from rlcore.api.conversations import Conversation, ConversationContext, ConversationSteps, Dialogue, Transcript, Turn, Wait
from rlcore_plugin_agents.agent_options import AgentOptions
from rlcore_plugin_agents.error_budget import ErrorBudget
from rlcore_plugin_agents.worker_commands import worker_command

__all__ = ["Agent"]

_OUTCOMES = ("ok", "exhausted", "timeout", "crashed", "environment", "lost")
_MASKED = {"timeout": Outcome.TIMEOUT, "crashed": Outcome.ERROR, "environment": Outcome.INFRA, "lost": Outcome.INFRA}


class Agent(Conversation):
    """Gives each rollout to the gateway process of its producer, and asks the engine for what the gateway needs."""

    max_turns = 1 << 30  # max_calls of the options counts those of one episode, and refuses more without ending the run

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._closing = ExitStack()
        self._link: GatewayLink
        self._budget: ErrorBudget
        self._context: ConversationContext

    def open(self, context: ConversationContext) -> None:
        """Start the gateway process."""
        given, chosen = self._options, context.environment
        if chosen is None:
            raise RunError("conversation agent needs an environment; type --environment")
        self._context, self._budget = context, ErrorBudget(chosen.name, given.error_budget, context.say)
        self.deadline = max(given.deadline, 0.9 * context.lease_deadline)  # includes the time in which an episode waits for a process
        setup = GatewaySetup(
            tokenizer=context.tokenizer,
            settings=GatewaySettings(history=given.history, tool_parser=given.tool_parser),
            command=worker_command(chosen, given.episodes_per_process, self._closing, given.sandbox),
            workers=given.workers,
            deadline=given.deadline,
            cancel_seconds=given.cancel_seconds,
            sandbox=given.sandbox,
        )
        self._link = GatewayLink(context.producer, setup, context.say, restarts=given.gateway_restarts, silence=given.gateway_silence)
        self._link.start()
        self._closing.callback(self._link.close)

    def close(self) -> None:
        """End the gateway process and all programs."""
        self._closing.close()

    def converse(self, transcript: Transcript) -> ConversationSteps:
        """See Conversation."""
        sampling = transcript.sampling
        limits = EpisodeLimits(
            tokens=sampling.max_new_tokens,
            context=self._context.max_context_tokens,
            calls=self._options.max_calls,
            answer=self._options.max_call_tokens or None,
            stop=sampling.stop,
        )
        episode = self._link.open_episode(_row(transcript.prompt), limits, transcript.wake)
        try:
            yield from _served(episode, transcript)
        finally:
            episode.close()
        assert episode.report is not None
        end = episode.report.end
        self._budget.count(end.outcome, end.reason)
        return self._dialogue(transcript.prompt, episode.report)

    def _dialogue(self, prompt: Prompt, report: EpisodeReport) -> Dialogue:
        end, result = report.end, report.result
        figures = {f"episode_{outcome}": float(end.outcome == outcome) for outcome in _OUTCOMES}
        own = {"outcome": end.outcome, "reason": end.reason, "reward": end.reward, **figures}
        if result is None or not result.segments:
            reason = end.reason or "the episode has no tokens that train"
            verdict = Score.failed(_MASKED.get(end.outcome, Outcome.ERROR), reason)
            return Dialogue(extra={**end.extra, **own}, verdict=verdict, finish=FinishReason.STOP)
        return Dialogue(
            segments=result.segments,
            messages=_after(prompt, result.messages),
            turn_lengths=result.turn_lengths,
            turn_rewards=tuple(end.turn_rewards.get(call, 0.0) for call in result.calls) if end.turn_rewards else (),
            extra={**end.extra, **result.counts, **own},
            finish=FinishReason.LENGTH if end.outcome == "exhausted" and result.exhausted != "calls" else FinishReason.STOP,
            verdict=self._verdict(end.outcome, end.reason),
        )

    def _verdict(self, outcome: str, reason: str) -> Score | None:
        """Return the score of an episode that no reward may judge."""
        if outcome == "crashed" and self._options.on_crash == "zero":
            return Score(value=0.0, accuracy=0.0, outcome=Outcome.WRONG, reason=reason)
        if outcome not in _MASKED or (outcome == "timeout" and self._options.on_timeout == "grade"):
            return None
        return Score.failed(_MASKED[outcome], reason)


def _served(episode: LinkedEpisode, transcript: Transcript) -> ConversationSteps:
    """Ask the engine for what the episode needs until it has ended."""
    turns: dict[str, Turn] = {}
    while True:
        opened, dropped = [], []
        for news in episode.take():
            if isinstance(news, Ask):
                turns[news.call] = _turn(news, transcript)
                opened.append(news.call)
            elif (turn := turns.pop(news, None)) is not None:
                dropped.append((news, turn))
        if episode.report is not None:
            return Dialogue()
        gone = {call for call, _ in dropped}  # a call may be withdrawn before it was opened
        answers = yield Wait(
            turns=tuple(turns[call] for call in opened if call not in gone),
            cancel=tuple(turn for call, turn in dropped if call not in opened),
        )
        calls = {turn: call for call, turn in turns.items()}
        for turn, completion in answers:
            if turn in calls:
                episode.answer(calls[turn], completion)
                del turns[calls[turn]]


def _turn(ask: Ask, transcript: Transcript) -> Turn:
    sampling = replace(transcript.sampling, max_new_tokens=ask.max_new_tokens, stop=ask.stop)
    return Turn(context_ids=ask.context_ids, sampling=sampling, noise=ask.noise)


def _row(prompt: Prompt) -> Mapping[str, Any]:
    """Return a row for the environment. Raise RunError if JSON cannot represent a column."""
    row = {**prompt.columns, "messages": [message.plain() for message in prompt.messages]}
    if prompt.tools:
        row["tools"] = list(prompt.tools)
    for name, value in row.items():
        try:
            as_line({name: value})
        except (TypeError, ValueError) as error:
            raise RunError(f"column {name} of prompt {prompt.prompt_id} cannot be sent to the environment as JSON: {error}") from None
    return row


def _after(prompt: Prompt, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages after those of the prompt, if the chat begins with them."""
    own = [message.plain() for message in prompt.messages]
    return messages[len(own) :] if [message.plain() for message in messages[: len(own)]] == own else messages
