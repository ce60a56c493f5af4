"""Bounds that no schedule can beat, in closed form, and a rough estimate that ranks splits before any of them is simulated."""

from __future__ import annotations

from math import ceil

from rlcore_plugin_tools.plan.scenario import Scenario, longest_share, open_shares
from rlcore_plugin_tools.plan.workload_model import Workload

__all__ = ["enough_updates", "estimated_period", "generation_seconds", "synchronous_generation_seconds", "training_seconds"]

_TIE = 1e-3
_VERSIONS = 4
"""The least number of versions that arrive during the measurement."""


def training_seconds(scenario: Scenario) -> float:
    """Return the seconds of an update on a batch of average lengths. No schedule has a shorter mean time between updates."""
    return scenario.update_seconds(
        sum(
            scenario.batch * share * part.num_generations * (part.prompt_tokens + part.response_tokens)
            for share, part in scenario.workload.trained
        )
    )


def generation_seconds(scenario: Scenario) -> float:
    """Return the seconds in which the producers generate one batch of groups of average lengths, as full as ``groups_per_producer`` keeps
    them."""
    workload, running = scenario.workload, _running(scenario)
    decoding = _decoded(workload) * workload.generation.step(running) / running
    return _groups(scenario) * (decoding + _prompt_tokens(workload) / workload.generation.prefill_tokens_per_second)


def synchronous_generation_seconds(scenario: Scenario) -> float:
    """Return the seconds in which the producers generate one batch from the start to its last response. It has as many decode steps as the
    longest response, or as the slots force; each token adds its part. Exact if a batch is one response a slot, spread evenly."""
    generation, groups = scenario.workload.generation, _groups(scenario)
    tokens = _decoded(scenario.workload, groups)
    steps = max(_longest(scenario), tokens / generation.slots)
    return (
        generation.step_seconds * steps
        + generation.request_seconds * tokens
        + groups * _prompt_tokens(scenario.workload) / generation.prefill_tokens_per_second
    )


def _groups(scenario: Scenario) -> float:
    """Return the groups that each producer generates for one batch, with those that the filter removes."""
    return scenario.batch / scenario.workload.passing / scenario.producers


def _decoded(workload: Workload, groups: float = 1.0) -> float:
    """Return the tokens that so many groups decode, on average over the sources."""
    return sum(groups * share * part.num_generations * part.response_tokens for share, part in workload.drawn)


def _prompt_tokens(workload: Workload) -> float:
    return sum(share * part.prompt_tokens for share, part in workload.drawn)


def _longest(scenario: Scenario) -> float:
    return max(
        part.response_tokens * longest_share(part.responses, max(1, round(scenario.batch * share * part.num_generations)))
        for share, part in scenario.workload.trained
    )


def _running(scenario: Scenario) -> int:
    """Return the requests in the slots of a producer that starts groups one by one: a group stays open until its longest response ends."""
    groups = scenario.groups_per_producer
    open_requests = sum(
        share * (groups * part.num_generations / longest_share(part.responses, part.num_generations))
        for share, part in open_shares(scenario.workload)
    )
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
