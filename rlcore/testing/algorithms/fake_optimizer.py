"""A simple fake of an optimizer. Imports torch when it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from rlcore.contracts.training_settings import OptimizerFactory, OptimizerSettings
from rlcore.testing.fake_plugin import FAKE_OPTIMIZER

if TYPE_CHECKING:
    import torch

__all__ = ["MOMENTUM", "FakeOptimizer"]

MOMENTUM = 0.5


class FakeOptimizer(OptimizerFactory, spec=FAKE_OPTIMIZER):
    """SGD with momentum, without decay. ``fast``: names that step at twice the rate; None: all vectors."""

    def __init__(self, fast: Set[str] | None = None) -> None:
        self._fast = fast

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        """Return one optimizer with a group for each parameter."""
        import torch

        fast = {name for name, item in parameters.items() if item.ndim < 2} if self._fast is None else self._fast
        groups = [{"params": [item], "lr_scale": 2.0 if name in fast else 1.0} for name, item in parameters.items()]
        return [torch.optim.SGD(groups, lr=settings.learning_rate, momentum=MOMENTUM)]
