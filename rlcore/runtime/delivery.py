"""From a lease to a job, and from what was produced to a group and what the schedule learns of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlcore.contracts.types import Group, Kind, Lease, Prompt, Sampling
from rlcore.roles.producer import GroupJob, Produced
from rlcore.runtime.schedule_service import Arrival
from rlcore.schedule import Delivery

__all__ = ["AnnealedSampling", "JobMaker"]


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
        self._filter_by = filter_by
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

    def finished(self, produced: Produced) -> tuple[Arrival, Group]:
        """The group that a finished job is, and what the schedule learns of it; its lease is forgotten."""
        lease = self._leases.pop(produced.job.key)
        group = Group(
            prompt_id=produced.job.prompt.prompt_id,
            episode=lease.episode,
            prompt_index=lease.prompt_index,
            rollouts=produced.rollouts,
            scores=produced.scores,
        )
        delivery = _delivery(group, lease, self._filter_by)
        arrival = Arrival(
            delivery=delivery,
            prompt_id=group.prompt_id,
            tokens=sum(rollout.length for rollout in group.rollouts),
            reason=_reason(group, delivery, self._filter_by),
        )
        return arrival, group


def _delivery(group: Group, lease: Lease, filter_by: str) -> Delivery:
    """What the coordinator learns of a group: its version, its accuracy, or why none of it can train."""
    sampled = [score for rollout, score in zip(group.rollouts, group.scores, strict=True) if rollout.kind is Kind.SAMPLED]
    counted = [score for score in sampled if score.in_statistics]
    versions = [rollout.version for rollout in group.rollouts if rollout.version is not None]
    accuracies = [score.accuracy if filter_by == "accuracy" else score.parts.get(f"{filter_by}/accuracy") for score in counted]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return Delivery(
        lease_id=lease.lease_id,
        version=min(versions, default=lease.version),
        accuracy=sum(known) / len(known) if known else None,
        failed="" if counted else sampled[0].outcome.value,
    )


def _reason(group: Group, delivery: Delivery, filter_by: str) -> str:
    """Why its prompt fails, should it: it cannot if it was judged and has an accuracy."""
    if not delivery.failed and delivery.accuracy is not None:
        return ""
    if not delivery.failed:
        return f"no accuracy to filter by (filter_by {filter_by})"
    reasons = [f"{score.outcome.value}: {score.reason}" for score in group.scores]
    return max(set(reasons), key=reasons.count)
