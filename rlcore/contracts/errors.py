"""One root error and the few children that decide how a command ends.

``UsageError`` and its children are the user's to mend: one sentence, exit code 2, nothing written.
``RunError`` ends a run that had started: exit code 1, what was saved stays.
"""

from __future__ import annotations

import errno

__all__ = [
    "ConfigError",
    "DataError",
    "GroupBrokenError",
    "InfrastructureError",
    "InterruptedRunError",
    "PluginError",
    "RewardBudgetError",
    "RlcoreError",
    "RunError",
    "RuntimeLostError",
    "SandboxError",
    "StarvationError",
    "UsageError",
    "WeightsError",
    "WorkerLostError",
    "disk_full",
]

_FULL = ("No space left on device", "Disk quota exceeded", "disk full")


class RlcoreError(Exception):
    """Every error that rlcore raises on purpose; ``str(error)`` is one sentence meant for a person."""

    exit_code = 1


class UsageError(RlcoreError):
    """What was typed or handed in cannot work. Says what, where, which rule, and what to type instead."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown, has the wrong type, breaks a rule, or contradicts another."""


class DataError(UsageError):
    """A data file cannot be read, or a row of it breaks a rule; names file and line."""


class PluginError(UsageError):
    """A plugin is missing, broken, of another API version, or clashes with another one."""


class RunError(RlcoreError):
    """A run that had started cannot go on."""


class WeightsError(RunError):
    """A snapshot arrived damaged, or a backend serves other weights than it says."""


class GroupBrokenError(WeightsError):
    """The group of an engine's own transfer lost a member: another group, with a higher epoch, takes its place."""


class WorkerLostError(RunError):
    """A part of the run that it cannot do without died: the coordinator, a trainer rank, the last producer."""


class RuntimeLostError(RunError):
    """What all workers of a run stand on is gone (the head of somebody else's cluster): nothing that this process does brings it back."""


class InterruptedRunError(RunError):
    """A run that had been told to end lost a part before it had saved its last step: a scheduler may type its command again."""

    exit_code = 130


class InfrastructureError(RlcoreError):
    """The machine around a reward failed (a sandbox, a network), not the judged text and not the reward's own code.

    A reward that raises it gets outcome ``infra``: the rollout is tried once more, then masked, counted and budgeted.
    """


class SandboxError(InfrastructureError):
    """A sandbox died, twice, or cannot be made here; says what was tried and what to install."""


class RewardBudgetError(RunError):
    """More rewards failed (timeout, error, infra) than the configured budget allows."""


class StarvationError(RunError):
    """The group filter or failures leave nothing to train on."""


def disk_full(error: BaseException) -> str:
    """Return "disk full" if an error says so in whatever words, else ""."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or any(words in str(error) for words in _FULL)
    return "disk full" if full else ""
