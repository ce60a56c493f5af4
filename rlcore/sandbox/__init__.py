"""Runs programs that nobody trusts: records, options, the jail of this machine. Rewards reach it as ``rlcore.api.sandbox``."""

from rlcore.sandbox.opening import open_sandbox
from rlcore.sandbox.options import SandboxOptions
from rlcore.sandbox.records import Job, Level, Limit, Limits, Ran, Sandbox

__all__ = ["Job", "Level", "Limit", "Limits", "Ran", "Sandbox", "SandboxOptions", "open_sandbox"]
