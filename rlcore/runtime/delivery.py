"""From a lease to a job, and from what was produced to a group and its delivery: the words that producer and coordinator exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rlcore.contracts.types import Group, Kind, Lease, Prompt, Sampling
from rlcore.roles.producer import GroupJob, Produced
from rlcore.schedule.coordinator import Delivery

__all__ = ["AnnealedSampling", "JobMaker", "Tokens", "delivery_of", "failure_of", "group_of"]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of groups that were delivered, and those of them that trained nothing: filtered, masked, failed, late, or lost afterwards."""

    generated: int = 0
    wasted: int = 0

    def plus(self, tokens: int, *, wasted: bool) -> Tokens:
        """With one more group."""
        return Tokens(self.generated + tokens, self.wasted + tokens * wasted)

    def lost(self, tokens: int) -> Tokens:
        """With a group that was counted as good, and is gone."""
        return Tokens(self.generated, self.wasted + tokens)

    def since(self, earlier: Tokens) -> Tokens:
        """What has come after an earlier count."""
        return Tokens(self.generated - earlier.generated, self.wasted - earlier.wasted)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealedSampling:
    """The temperature of what is sampled for training, by policy version: constant, or from one value to another in equal steps. A rollout
    is trained at the temperature that it was sampled at, however old it is then.

    ``sampling`` at version 0; ``end``: the temperature at version ``updates - 1``, which the last update trains on, and at any later
    one (None: constant). ``updates``: the horizon of the run."""

    sampling: Sampling
    end: float | None
    updates: int

    def at(self, version: int) -> Sampling:
        """How to sample what is leased at this policy version."""
        start, last = self.sampling.temperature, max(1, self.updates - 1)
        if self.end is None or version <= 0:
            return self.sampling
        # The end itself, not a sum that rounds beside it.
        reached = self.end if version >= last else start + (self.end - start) * (version / last)
        return replace(self.sampling, temperature=reached)


class JobMaker:
    """Makes jobs of leases, and remembers the leases that are out."""

    def __init__(self, prompts: tuple[Prompt, ...], sampling: AnnealedSampling, seed: int, filter_by: str) -> None:
        self.filter_by = filter_by
        self._prompts = prompts
        self._sampling = sampling
        self._seed = seed
        self._leases: dict[int, Lease] = {}

    def job(self, lease: Lease) -> GroupJob:
        """The job of a lease: sampled rollouts first, greedy ones after them. The lease's version decides the temperature."""
        self._leases[lease.lease_id] = lease
        sampling = self._sampling.at(lease.version)
        greedy = replace(sampling, temperature=0.0)
        return GroupJob(
            key=lease.lease_id,
            prompt=self._prompts[lease.prompt_index],
            samplings=(sampling,) * lease.n_sampled + (greedy,) * lease.n_greedy,
            noise=(self._seed, lease.episode, lease.prompt_index),
        )

    def lease(self, lease_id: int) -> Lease:
        """The lease that a result answers."""
        return self._leases[lease_id]

    def close(self, lease_id: int) -> None:
        """Forget a lease that was answered."""
        del self._leases[lease_id]


def group_of(produced: Produced, lease: Lease) -> Group:
    """The group that a finished job is."""
    return Group(
        prompt_id=produced.job.prompt.prompt_id,
        episode=lease.episode,
        prompt_index=lease.prompt_index,
        rollouts=produced.rollouts,
        scores=produced.scores,
    )


def delivery_of(lease_id: int, group: Group, lease: Lease, filter_by: str) -> Delivery:
    """What the coordinator learns of a group: its version, its accuracy, or why none of it can train."""
    sampled = [score for rollout, score in zip(group.rollouts, group.scores, strict=True) if rollout.kind is Kind.SAMPLED]
    counted = [score for score in sampled if score.in_statistics]
    versions = [rollout.version for rollout in group.rollouts if rollout.version is not None]
    accuracies = [score.accuracy if filter_by == "accuracy" else score.parts.get(f"{filter_by}/accuracy") for score in counted]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return Delivery(
        lease_id=lease_id,
        version=min(versions, default=lease.version),
        accuracy=sum(known) / len(known) if known else None,
        failed="" if counted else sampled[0].outcome.value,
    )


def failure_of(group: Group, filter_by: str) -> dict[str, Any]:
    """The record of a prompt that failed. ``filter_by``: the reward that gave no accuracy to filter by; "" where the group failed
    before."""
    reasons = [f"{score.outcome.value}: {score.reason}" for score in group.scores]
    reason = f"no accuracy to filter by (filter_by {filter_by})" if filter_by else max(set(reasons), key=reasons.count)
    return {"prompt_id": group.prompt_id, "episode": group.episode, "reason": reason}
