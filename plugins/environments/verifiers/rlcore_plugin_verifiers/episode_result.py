"""What an episode of verifiers means for rlcore: its outcome, rewards and metrics, and the tokens that its traces recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from statistics import mean

import verifiers.v1 as vf

from rlcore.api import InfrastructureError
from rlcore.api.environments import EpisodeResult
from rlcore_plugin_verifiers.inline_harness import CALLS

__all__ = ["AgentFailedError", "result_of"]

_AGENT = ("ProviderError", "HarnessError")
"""Errors that are not the environment's: a refused call, after which the gateway knows why, and a harness that failed."""
_TIMEOUTS = ("agent_timeout",)


class AgentFailedError(RuntimeError):
    """The harness of an agent failed, or a call of the policy was refused."""


def result_of(episode: vf.Episode, players: Collection[str], recorded: bool) -> EpisodeResult:
    """Return the result of an episode.

    :param players: the roles that are players of the run; others are the policy.
    :param recorded: whether the traces have the tokens of the policy.
    :raises AgentFailedError: an agent failed.
    :raises InfrastructureError: the environment, its tools or its graders failed.
    """
    _raise_errors(episode)
    traces = [trace for trace in episode.traces if trace.agent.trainable]
    rewards = {trace.id: trace.reward for trace in traces if any(trace.rewards.values())}
    late = any(trace.stop_condition in _TIMEOUTS for trace in episode.traces)
    by_player = {role: _mean_reward(traces, rewards, role) for role in players}
    named = not players and all(CALLS in trace.info for trace in traces)
    calls = [(trace, trace.info[CALLS]) for trace in traces] if named else []
    return EpisodeResult(
        outcome="timeout" if late else "ok",
        reason="an agent was too late" if late else "",
        reward=mean(rewards.values()) if rewards else None,
        player_rewards={role: reward for role, reward in by_player.items() if reward is not None},
        branch_rewards={ids[-1]: rewards[trace.id] for trace, ids in calls if trace.id in rewards} if len(calls) > 1 else {},
        calls=tuple(call for _, ids in calls for call in ids) if named else None,
        extra=_figures(episode.traces),
        sampled=_sampled(episode.traces) if recorded else None,
    )


def _raise_errors(episode: vf.Episode) -> None:
    errors = [(trace.agent.name, trace.errors[-1]) for trace in episode.traces if trace.errors and not trace.ok]
    errors += [("environment", error) for error in episode.errors[-1:]]
    for who, error in sorted(errors, key=lambda pair: pair[1].type not in _AGENT):
        said = f"{who}: {error.type}: {' '.join(error.message.split())[:300]}"
        raise AgentFailedError(said) if error.type in _AGENT else InfrastructureError(said)
    late = next((trace for trace in episode.traces if trace.is_timeout and trace.stop_condition not in _TIMEOUTS), None)
    if late is not None:
        raise InfrastructureError(f"{late.agent.name}: {late.stop_condition}")


def _mean_reward(traces: Sequence[vf.Trace], rewards: dict[str, float], role: str) -> float | None:
    own = [rewards[trace.id] for trace in traces if trace.agent.name == role and trace.id in rewards]
    return mean(own) if own else None


def _figures(traces: Sequence[vf.Trace]) -> dict[str, float]:
    """Return metrics and rewards by name, with the role before it if there are several; the mean if an agent ran more than once."""
    several = len({trace.agent.name for trace in traces}) > 1
    found: dict[str, list[float]] = defaultdict(list)
    for trace in traces:
        role = f"{trace.agent.name}_" if several else ""
        found[f"{role}turns"].append(trace.num_turns)
        for name, metric in trace.metrics.items():
            if metric is not None:
                found[role + name].append(metric)
        for name, reward in trace.rewards.items():
            if reward is not None:
                found[f"{role}reward_{name}"].append(reward.score)
    return {name: mean(values) for name, values in found.items()}


def _sampled(traces: Sequence[vf.Trace]) -> list[list[int]]:
    """Return the tokens of each answer that the traces recorded as sampled."""
    nodes = [node for trace in traces for node in trace.nodes if node.sampled]
    return [[token for token, own in zip(node.token_ids, node.mask, strict=True) if own] for node in nodes]
