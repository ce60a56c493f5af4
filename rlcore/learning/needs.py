"""What to say where a loss reads something that nobody computed for it."""

from __future__ import annotations

from rlcore.contracts.interfaces import Need

__all__ = ["undeclared"]


def undeclared(error: BaseException) -> str:
    """The end of the sentence about a loss's own error where it met a None: "" for any other error."""
    if not isinstance(error, TypeError | AttributeError) or "NoneType" not in str(error):
        return ""
    return f"; what is None in a batch was not asked for: a loss declares what it reads in `needs` ({', '.join(Need)})"
