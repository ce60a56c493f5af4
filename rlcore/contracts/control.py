"""Controllers: plugins that steer a run between its updates."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rlcore.contracts.from_spec import FromSpec
from rlcore.contracts.public_members import PublicMembers
from rlcore.contracts.specs import ControllerSpec

__all__ = ["Controller", "Decision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(metaclass=PublicMembers):
    """What a controller decides after an update. Since 2.0.

    ``stop``: the reason to end the run, in half a sentence; "": it continues. A run that stops is evaluated and saved, and has succeeded.
    ``evaluate``: evaluate the held-out tasks with the new weights.
    ``save``: save a checkpoint.
    ``set``: new values by the path of a setting, of those that the controller declares in ``sets``; for those in ``scales``, factors. A
        value stays until the controller gives another one.
    """

    stop: str = ""
    evaluate: bool = False
    save: bool = False
    set: Mapping[str, Any] = field(default_factory=dict)


class Controller(FromSpec, ABC, described_by=ControllerSpec):
    """A part of the run's loop: it sees every update and every evaluation, and decides how the run continues. Since 2.0.

    Its decisions must depend only on these, not on clocks or its own random numbers, so that a resumed run decides the same. An
    exception ends the run.

    ``sets`` and ``scales``: as in ``ControllerSpec``.
    """

    sets: ClassVar[tuple[str, ...]] = ()
    scales: ClassVar[tuple[str, ...]] = ()

    def step_finished(self, step: int, figures: Mapping[str, float]) -> Decision | None:
        """Return the decision after update ``step`` (from 1), None for no change. It applies from the next update.

        A temperature or a filter range applies to prompts that are leased under versions after ``step``.

        :param figures: the row of metrics.jsonl, read-only.
        """
        return None

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """See the evaluation of the weights of ``step``: ``{"eval/math": 0.5, …}``.

        Called before ``step_finished`` of the update after ``step``, which waits for it. The first evaluation, of step 0, comes before the
        first update.
        """

    def checkpoint_begun(self, step: int) -> None:
        """See that a checkpoint of the weights of ``step`` begins. It holds the ``state`` after this call."""

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return what the decisions depend on, for a checkpoint: arrays, numbers or texts by name. {}: nothing."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the values that ``state`` returned. Each is an array; a number has no axes."""
        raise NotImplementedError(f"{type(self).__name__} gave a state and cannot restore one")
