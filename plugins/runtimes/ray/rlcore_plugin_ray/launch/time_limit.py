"""The time limit of a Slurm job, in the forms that ``sbatch --time`` takes."""

from __future__ import annotations

import re

from rlcore.api import UsageError

__all__ = ["GRACE_SECONDS", "check_time_limit"]

GRACE_SECONDS = 120
"""How long before its time limit Slurm signals a job to save and end."""
_SHORTEST = 2 * GRACE_SECONDS
_FORMS = re.compile(
    r"(?:(?P<days>\d+)-(?P<dh>\d+)(?::(?P<dm>\d+)(?::(?P<ds>\d+))?)?"  # days-hours[:minutes[:seconds]]
    r"|(?P<h>\d+):(?P<hm>\d+):(?P<hs>\d+)|(?P<m>\d+)(?::(?P<s>\d+))?)"  # hours:minutes:seconds, minutes[:seconds]
)


def check_time_limit(text: str) -> int:
    """Return the limit in seconds. Raise UsageError if Slurm would read it differently, or if it leaves no time between start and save."""
    match = _FORMS.fullmatch(text) if text.isascii() else None
    if match is None:
        raise UsageError(f"--time {text} is not a time limit of Slurm; type --time 12:00:00 (hours, minutes, seconds) or --time 2-00:00:00")
    part = {name: int(value) for name, value in match.groupdict().items() if value is not None}
    days, hours = part.get("days", 0), part.get("dh", part.get("h", 0))
    minutes = part.get("dm", part.get("hm", part.get("m", 0)))
    seconds = ((days * 24 + hours) * 60 + minutes) * 60 + part.get("ds", part.get("hs", part.get("s", 0)))
    if seconds < _SHORTEST:
        raise UsageError(
            f"--time {text} is {seconds} s, and Slurm tells a job to save {GRACE_SECONDS} s before its end; type --time 5:00 or more"
        )
    return seconds
