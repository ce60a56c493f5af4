"""The states of an algorithm's parts between updates, in files of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlcore.registry.error_context import error_context
from rlcore.runlog.folder import writing

__all__ = ["PartWithState", "load_state", "save_state"]


class PartWithState(Protocol):
    """An advantage estimator or a loss."""

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return its state; {} if it has none."""
        ...

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state."""
        ...


def save_state(path: Path, part: PartWithState, who: str, *, write: bool) -> None:
    """Write the state of a part, if it has one. ``write``: whether this is the rank that writes, because the state is the same on every
    rank. Raises RunError if the state cannot be saved."""
    with error_context(who, "returning its state"):
        state: dict[str, Any] = {name: np.asarray(value) for name, value in part.state().items()}
        if strange := [name for name, value in state.items() if value.dtype.kind not in "biufU"]:
            raise TypeError(f"{strange[0]} of its state is of type {state[strange[0]].dtype}; numbers and texts can be saved")
        if taken := {"file", "allow_pickle"} & set(state):  # names of arguments of numpy.savez
            raise ValueError(f"its state has the name {min(taken)}, which a file of arrays cannot hold; choose another")
    if state and write:
        with writing(path):
            np.savez(path, **state)


def load_state(path: Path, part: PartWithState, who: str) -> None:
    """Restore the state of a part, if the file is there."""
    if path.exists():
        with np.load(path) as state, error_context(who, "restoring its state"):
            part.restore(dict(state))
