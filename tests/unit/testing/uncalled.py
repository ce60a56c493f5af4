"""An objective for trainers that call none; apart, so that their ranks load no torch."""

from __future__ import annotations

from typing import Any

from rlcore.contracts.interfaces import Need

__all__ = ["UncalledObjective"]


class UncalledObjective:
    """Raises."""

    needs: frozenset[Need] = frozenset()

    def __call__(self, logprobs: Any, batch: Any) -> Any:
        raise AssertionError("the fake trainer calls no objective")
