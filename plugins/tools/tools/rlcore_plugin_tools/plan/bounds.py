"""What no schedule can beat, in closed form, and a rough estimate from it that ranks splits before any of them is simulated."""

from __future__ import annotations

from math import ceil

from rlcore_plugin_tools.plan.scenario import Scenario, longest_share

__all__ = ["enough_updates", "estimated_period", "generation_seconds", "synchronous_generation_seconds", "training_seconds"]

_TIE = 1e-3
_VERSIONS = 4
"""How many versions arrive, at least, while it is measured."""


def training_seconds(scenario: Scenario) -> float:
    """Seconds of an update on a batch of average lengths: no schedule updates more often than the inverse on average."""
    group = scenario.workload.group
    return scenario.update_seconds(scenario.batch * group.num_generations * (group.prompt_tokens + group.response_tokens))


def generation_seconds(scenario: Scenario) -> float:
    """Seconds in which the producers make one batch's groups of average lengths, as full as ``groups_per_producer`` keeps them."""
    generation, group = scenario.workload.generation, scenario.workload.group
    running = _running(scenario)
    groups = scenario.batch / (1 - group.filtered) / scenario.producers
    decoding = group.num_generations * group.response_tokens * generation.step(running) / running
    return groups * (decoding + group.prompt_tokens / generation.prefill_tokens_per_second)


def synchronous_generation_seconds(scenario: Scenario) -> float:
    """Seconds in which the producers make one batch from nothing to its last response: every decode step of the longest response, or as
    many as the slots force, and what each token adds to a step. Exact where a batch is one response a slot, spread evenly."""
    generation, group = scenario.workload.generation, scenario.workload.group
    groups = scenario.batch / (1 - group.filtered) / scenario.producers
    tokens = groups * group.num_generations * group.response_tokens
    steps = max(_longest(scenario), tokens / generation.slots)
    return (
        generation.step_seconds * steps
        + generation.request_seconds * tokens
        + groups * group.prompt_tokens / generation.prefill_tokens_per_second
    )


def _longest(scenario: Scenario) -> float:
    group = scenario.workload.group
    return group.response_tokens * longest_share(group.responses, scenario.batch * group.num_generations)


def _running(scenario: Scenario) -> int:
    """Requests in the slots of a producer whose groups are started one by one: a group's longest response holds it open."""
    group = scenario.workload.group
    open_requests = scenario.groups_per_producer * group.num_generations / longest_share(group.responses, group.num_generations)
    return max(1, min(scenario.workload.generation.slots, ceil(open_requests)))


def enough_updates(scenario: Scenario, updates: int) -> int:
    """``updates``, or as many as show several versions on their way: weights that are sent for longer than updates take come once in many
    updates, which then follow each other as fast as if nothing were waited for."""
    most, training = scenario.max_staleness + 1, training_seconds(scenario)
    apart = min(most, scenario.weight_update.sending / training) if training else most
    return max(updates, _VERSIONS * max(1, ceil(apart)))


def estimated_period(scenario: Scenario) -> float:
    """Seconds between updates, roughly: synchronous, one role after the other; overlapped, the slower of both, and the longest response
    has to be done before ``max_staleness`` updates have passed it by."""
    overheads, weights = scenario.workload.overheads, scenario.weight_update
    training = training_seconds(scenario) + overheads.handover_seconds + overheads.publish_seconds + weights.stall
    taking = weights.pause + overheads.swap_seconds
    if scenario.alternating:
        switching = 2 * overheads.switch_seconds if scenario.colocated else 0.0
        return training + synchronous_generation_seconds(scenario) + weights.sending + taking + switching
    slower = max(training, generation_seconds(scenario) + taking)
    # Weights that take longer than an update are older still when they are there, for the version before them was under way.
    travelling = weights.sending + taking + max(0.0, weights.sending - slower)
    latency = _longest(scenario) * scenario.workload.generation.step(_running(scenario)) + travelling
    return max(slower, latency / scenario.max_staleness) + _TIE * slower  # where staleness binds, the balanced split is the better one
