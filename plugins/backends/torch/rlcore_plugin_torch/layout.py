"""The division of one model between the trainer ranks: the mesh of data-parallel and tensor-parallel ranks, and the part that each holds.

This module handles no tensors: ``sharding.py`` divides over the data axis, ``tensor_plan.py`` over the tensor axis.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlcore.api import ConfigError, TrainingContext

__all__ = ["Layout"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """``size`` ranks as a mesh [data, tensor]. Neighbouring ranks are tensor-parallel, because they exchange the most data.

    ``zero`` 0: every rank holds the whole of its tensor slice, and gradients are summed (DDP). 1 and 2: weights, gradients and moments are
    divided over the data axis, and a layer stays whole between its forward and its backward. 3: the layer is divided again in between
    (FSDP2).
    """

    size: int = 1
    tensor: int = 1
    zero: int = 0

    @classmethod
    def of(cls, context: TrainingContext) -> Layout:
        """Return the layout of a run. Raises ConfigError if the ranks do not fill the mesh."""
        if context.world_size % context.tensor_parallel:
            raise ConfigError(
                f"training.tensor_parallel_size {context.tensor_parallel} does not divide the {context.world_size} trainer ranks: every "
                f"copy of the model takes {context.tensor_parallel} of them; type -t {context.tensor_parallel} or a multiple of it"
            )
        return cls(size=context.world_size, tensor=context.tensor_parallel, zero=context.zero_stage)

    @property
    def data(self) -> int:
        """The number of ranks along the data axis, which is the number of shares of a batch."""
        return self.size // self.tensor

    @property
    def sharded(self) -> bool:
        """Whether weights are divided over the data axis."""
        return self.zero > 0 and self.data > 1

    @property
    def reshards(self) -> bool:
        """Whether a layer is divided again after its forward."""
        return self.zero == 3

    @property
    def split(self) -> bool:
        """Whether a rank holds only a part of the model, so that its forwards wait for other ranks."""
        return self.sharded or self.tensor > 1

    def place(self, rank: int) -> tuple[int, int]:
        """Return (data, tensor) of a rank."""
        return rank // self.tensor, rank % self.tensor

    def __str__(self) -> str:
        """Return one line for the user: ``4 ranks = 2 data x 2 tensor; -zero 3: …``."""
        ranks = f"{self.size} rank{'s' * (self.size > 1)}"
        if self.tensor > 1:
            ranks += f" = {self.data} data x {self.tensor} tensor (-tp {self.tensor}: each holds 1/{self.tensor} of every decoder layer)"
        if self.zero and self.data == 1:
            return f"{ranks}; -zero {self.zero}: one data-parallel rank, nothing to divide"
        return f"{ranks}; -zero {self.zero}: {self._division()}"

    def _division(self) -> str:
        if not self.zero:
            return "each holds the whole model" if self.tensor == 1 else "nothing is divided over the data axis"
        kept = "a layer is divided again after its forward" if self.reshards else "a layer stays whole from forward to backward"
        return f"FSDP2 divides weights, gradients and moments over {self.data} ranks, {kept}"
