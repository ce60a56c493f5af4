"""One root error and the few subclasses that decide how a command ends.

The user can fix a ``UsageError`` and its subclasses: one sentence, exit code 2, nothing written. ``RunError`` ends a run that had started:
exit code 1, and the saved files stay.
"""

from __future__ import annotations

import errno

from rlcore.contracts.public_members import PublicMembers

__all__ = [
    "ConfigError",
    "DataError",
    "FilterError",
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


class RlcoreError(Exception, metaclass=PublicMembers):
    """Base class of every error that rlcore raises on purpose. ``str(error)`` is one sentence for the user."""

    exit_code = 1


class UsageError(RlcoreError):
    """The command, the configuration or an argument cannot work.

    The message names the culprit, its place, the rule, and what to type instead.
    """

    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown, has the wrong type, breaks a rule, or contradicts another setting."""


class DataError(UsageError):
    """A data file cannot be read, or one of its rows breaks a rule. The message names file and line."""


class PluginError(UsageError):
    """A plugin is missing, is broken, was built for another API version, or clashes with another plugin."""


class RunError(RlcoreError):
    """A run that had started cannot continue."""


class WeightsError(RunError):
    """A snapshot arrived damaged, or a backend serves other weights than it claims."""


class GroupBrokenError(WeightsError):
    """The group of an engine's own transfer lost a member. Another group, with a higher epoch, replaces it."""


class WorkerLostError(RunError):
    """An indispensable part of the run died: the coordinator, a trainer rank, or the last producer."""


class RuntimeLostError(RunError):
    """The foundation of all workers is gone, such as the head of an external cluster. This process cannot restore it."""


class InterruptedRunError(RunError):
    """A run that was asked to end lost a part before it had saved its last step. A scheduler may run its command again."""

    exit_code = 130


class InfrastructureError(RlcoreError):
    """The infrastructure around a reward failed (a sandbox, a network), not the judged text and not the reward's own code.

    A reward that raises it gets the outcome ``infra``: the rollout is tried once more, then masked, counted and budgeted.
    """


class SandboxError(InfrastructureError):
    """A sandbox died twice, or cannot be created on this machine. The message says what was tried and what to install."""


class FilterError(RunError):
    """A filter of groups raised, or gave a wrong answer. It would do so in each process, so the error ends the run."""


class RewardBudgetError(RunError):
    """More rewards failed (timeout, error, infra) than the configured budget allows."""


class StarvationError(RunError):
    """The group filter or failures leave nothing to train on."""


def disk_full(error: BaseException) -> str:
    """Return "disk full" if the error says so by its number or its text, else ""."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or any(words in str(error) for words in _FULL)
    return "disk full" if full else ""
