"""Leases: what a producer is asked to make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcore.contracts.public_members import PublicMembers

__all__ = ["Lease"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(metaclass=PublicMembers):
    """The right and the duty to produce one group. It holds only indices, because every producer reads the same data set.

    ``source_index``: the number of the run's source, 0 if the run has one. ``prompt_index``: the prompt within it.
    ``ordinal``: how often the prompt was issued before, as far as a sampler may issue it several times in one episode. It enters the noise
        key, so that two issues of a prompt sample different completions.
    ``level``: the difficulty at which an endless source makes the prompt.
    ``settings``: the settings that controllers had changed for this version, by path; see ``Coordinator.control``.
    """

    lease_id: int
    episode: int
    prompt_index: int
    n_sampled: int
    n_greedy: int = 0
    version: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    source_index: int = 0
    ordinal: int = 0
    level: int = 0
