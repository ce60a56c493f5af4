"""Bounds that no schedule can beat, in closed form, and a rough estimate that ranks splits before any of them is simulated."""

from __future__ import annotations

from math import ceil

from rlcore_plugin_tools.plan.scenario import Scenario, longest_share

__all__ = ["enough_updates", "estimated_period", "generation_seconds", "synchronous_generation_seconds", "training_seconds"]

_TIE = 1e-3
_VERSIONS = 4
"""The least number of versions that arrive during the measurement."""


def training_seconds(scenario: Scenario) -> float:
    """Return the seconds of an update on a batch of average lengths. No schedule has a shorter mean time between updates."""
    group = scenario.workload.group
    return scenario.update_seconds(scenario.batch * group.num_generations * (group.prompt_tokens + group.response_tokens))


def generation_seconds(scenario: Scenario) -> float:
    """Return the seconds in which the producers generate one batch of groups of average lengths, as full as ``groups_per_producer`` keeps
    them."""
    generation, group = scenario.workload.generation, scenario.workload.group
    running = _running(scenario)
    groups = scenario.batch / (1 - group.filtered) / scenario.producers
    decoding = group.num_generations * group.response_tokens * generation.step(running) / running
    return groups * (decoding + group.prompt_tokens / generation.prefill_tokens_per_second)


def synchronous_generation_seconds(scenario: Scenario) -> float:
    """Return the seconds in which the producers generate one batch from the start to its last response. It has as many decode steps as the
    longest response, or as the slots force; each token adds its part. Exact if a batch is one response a slot, spread evenly."""
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
    """Return the requests in the slots of a producer that starts groups one by one: a group stays open until its longest response ends."""
    group = scenario.workload.group
    open_requests = scenario.groups_per_producer * group.num_generations / longest_share(group.responses, group.num_generations)
    return max(1, min(scenario.workload.generation.slots, ceil(open_requests)))


def enough_updates(scenario: Scenario, updates: int) -> int:
    """Return ``updates``, or more if these would show too few versions in transfer. If a transfer takes longer than several updates,
    versions arrive once in many updates, and the updates between them follow each other without any wait."""
    most, training = scenario.max_staleness + 1, training_seconds(scenario)
    apart = min(most, scenario.weight_update.sending / training) if training else most
    return max(updates, _VERSIONS * max(1, ceil(apart)))


def estimated_period(scenario: Scenario) -> float:
    """Return a rough estimate of the seconds between updates. Synchronous: the sum of both roles. Overlapped: the slower role; in addition,
    the longest response must end before ``max_staleness`` updates have passed."""
    overheads, weights = scenario.workload.overheads, scenario.weight_update
    training = training_seconds(scenario) + overheads.handover_seconds + overheads.publish_seconds + weights.stall
    taking = weights.pause + overheads.swap_seconds
    if scenario.alternating:
        switching = 2 * overheads.switch_seconds if scenario.colocated else 0.0
        return training + synchronous_generation_seconds(scenario) + weights.sending + taking + switching
    slower = max(training, generation_seconds(scenario) + taking)
    # If a transfer takes longer than an update, weights are even older on arrival, since they waited for the transfer of the version
    # before.
    travelling = weights.sending + taking + max(0.0, weights.sending - slower)
    latency = _longest(scenario) * scenario.workload.generation.step(_running(scenario)) + travelling
    return max(slower, latency / scenario.max_staleness) + _TIE * slower  # if staleness binds, the balanced split is the better one
