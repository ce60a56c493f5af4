"""The conversation ``agent``: a rollout is an episode that a program plays with the policy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from statistics import mean
from typing import Any, Literal

from rlcore_gateway.gateway import Ask, GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.link import LinkedEpisode
from rlcore_gateway.link_messages import EpisodeReport, GatewaySetup
from rlcore_gateway.links import GatewayLinks
from rlcore_gateway.players import EpisodeDraws
from rlcore_gateway.trained import LedgerResult
from rlcore_gateway.worker_lines import EpisodeEnd, as_line

from rlcore.api import FinishReason, Message, Outcome, Prompt, RunError, Score
from rlcore.api.conversations import Conversation, ConversationContext, ConversationSteps, Dialogue, RolloutBranch, Transcript, Turn, Wait
from rlcore_plugin_agents.agent_options import AgentOptions, EnvironmentRewardOptions
from rlcore_plugin_agents.environment_reward import environment_score
from rlcore_plugin_agents.error_budget import ErrorBudget
from rlcore_plugin_agents.player_engines import PlayerEngines
from rlcore_plugin_agents.player_options import without_policy
from rlcore_plugin_agents.worker_commands import worker_command

__all__ = ["Agent"]

_OUTCOMES = ("ok", "exhausted", "timeout", "crashed", "environment", "lost")
_MASKED = {"timeout": Outcome.TIMEOUT, "crashed": Outcome.ERROR, "environment": Outcome.INFRA, "lost": Outcome.INFRA}


class Agent(Conversation):
    """Gives each rollout to a gateway process of its producer, and asks the engine for what the gateway needs."""

    max_turns = 1 << 30  # max_calls of the options counts those of one episode, and refuses more without ending the run

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._closing = ExitStack()
        self._gateways: GatewayLinks
        self._players: PlayerEngines
        self._budget: ErrorBudget
        self._context: ConversationContext

    def open(self, context: ConversationContext) -> None:
        """Start the gateway processes."""
        given, chosen = self._options, context.environment
        if chosen is None:
            raise RunError("conversation agent needs an environment; type --environment")
        self._context, self._budget = context, ErrorBudget(chosen.name, given.error_budget, context.say)
        self.deadline = max(given.deadline, 0.9 * context.lease_deadline)  # includes the time in which an episode waits for a process
        self._players = PlayerEngines(given, context, lambda error: self._gateways.fail(error))
        self._closing.callback(self._players.close)
        setup = GatewaySetup(
            tokenizer=context.tokenizer,
            settings=GatewaySettings(history=given.history, tool_parser=given.tool_parser, on_budget=_on_budget(given, chosen.name)),
            command=worker_command(chosen, given.episodes_per_process, self._closing, given.sandbox),
            workers=given.workers,
            deadline=given.deadline,
            cancel_seconds=given.cancel_seconds,
            sandbox=given.sandbox,
            players=self._players.setups,
        )
        restarts, silence = given.gateway_restarts, given.gateway_silence
        self._gateways = GatewayLinks(context.producer, setup, context.say, count=given.gateways, restarts=restarts, silence=silence)
        self._gateways.start()
        self._closing.callback(self._gateways.close)
        self._players.start()

    def close(self) -> None:
        """End the gateway processes and all programs."""
        self._closing.close()

    def converse(self, transcript: Transcript) -> ConversationSteps:
        """See Conversation."""
        sampling = transcript.sampling
        draws = EpisodeDraws(sampling=sampling, noise=transcript.noise)
        limits = EpisodeLimits(
            tokens=sampling.max_new_tokens,
            context=self._context.max_context_tokens,
            calls=self._options.max_calls,
            answer=self._options.max_call_tokens or None,
            stop=sampling.stop,
        )
        episode = self._gateways.open_episode(_row(transcript.prompt), limits, transcript.wake, draws)
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
        reward = mean(end.player_rewards.values()) if end.reward is None and end.player_rewards else end.reward
        by_player = {f"reward_{player}": value for player, value in end.player_rewards.items()}  # their mean may always be 0
        own = {"outcome": end.outcome, "reason": end.reason, "reward": reward, **by_player, **figures}
        if result is None or not result.segments:
            reason = end.reason or "the episode has no tokens that train"
            extra = {**end.extra, **own}
            judged = without_policy(self._options.players) and end.outcome not in _MASKED
            verdict = _own_score(extra) if judged else Score.failed(_MASKED.get(end.outcome, Outcome.ERROR), reason)
            return Dialogue(extra=extra, verdict=verdict, finish=FinishReason.STOP)
        branches, rewards = _branches(end, result)
        return Dialogue(
            segments=result.segments,
            text=result.text,
            branches=branches,
            messages=_after(prompt, result.messages),
            turn_lengths=result.turn_lengths,
            turn_rewards=tuple(end.turn_rewards.get(call, 0.0) for call in result.calls) if end.turn_rewards else (),
            extra={**end.extra, **result.counts, **own, **({"branch_rewards": rewards} if branches else {})},
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


def _own_score(extra: Mapping[str, Any]) -> Score:
    """Return the environment's score of an episode of an evaluation in which the policy does not play."""
    try:
        return environment_score(extra, (), EnvironmentRewardOptions())
    except ValueError as error:
        return Score.failed(Outcome.ERROR, str(error))


def _on_budget(options: AgentOptions, environment: str) -> Literal["refuse", "answer"]:
    if options.on_budget != "auto":
        return options.on_budget
    return "answer" if environment == "command" else "refuse"  # command line agents end badly if they are refused


def _branches(end: EpisodeEnd, result: LedgerResult) -> tuple[tuple[RolloutBranch, ...], list[float | None]]:
    """Return the parts of an episode that are rewarded separately, and their rewards, None for that of the episode.

    With rewards of branches, a chat is a part, with all segments that its rewritten histories begin. If several of its branches have a
    reward, each of them is a part, and so is each other segment, with the mean of these rewards. Otherwise, a player is a part.
    """
    if not end.branch_rewards and not any(branch.player for branch in result.branches):
        return (), []
    parts: list[tuple[RolloutBranch, float | None]] = []
    for (player, _), group in groupby(result.branches, key=lambda branch: (branch.player, branch.chat if end.branch_rewards else 0)):
        branches, own = list(group), end.player_rewards.get(player)
        given = [end.branch_rewards[branch.call] for branch in branches if branch.call in end.branch_rewards]
        if len(given) < 2:
            parts.append((RolloutBranch(len(branches), player), given[0] if given else own))
        else:
            parts += [(RolloutBranch(1, player), end.branch_rewards.get(branch.call, mean(given))) for branch in branches]
    return tuple(part for part, _ in parts), [reward for _, reward in parts]


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
            on="tools" if episode.tools else "environments",
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
