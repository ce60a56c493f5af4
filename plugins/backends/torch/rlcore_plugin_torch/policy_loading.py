"""Load the policy of this rank from a folder: read it, add adapters if there are any, and divide it as the layout says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rlcore.api import TrainingContext
from rlcore_plugin_torch.checksums import fingerprint
from rlcore_plugin_torch.loading import load_model
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.ranks import TorchRanks
from rlcore_plugin_torch.sharding import divide
from rlcore_plugin_torch.tensor_plan import slice_layers

if TYPE_CHECKING:
    from rlcore_plugin_torch.adapters import Adapters

__all__ = ["HUB_COMMIT", "PolicyLoader"]

HUB_COMMIT = "commit on the hub"
"""The key, in place of a file's name, that identifies a model without a folder."""


@dataclass(frozen=True, kw_only=True)
class PolicyLoader:
    """``ranks`` have met; ``device`` is the device on which this rank computes."""

    context: TrainingContext
    options: TorchOptions
    ranks: TorchRanks
    device: torch.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the forward pass, and of exported weights."""
        found: torch.dtype = getattr(torch, self.context.dtype)
        return found

    @property
    def master_dtype(self) -> torch.dtype:
        """The precision of weights, gradients and moments."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def rounds(self) -> bool:
        """Whether weights are exported in a lower precision than they are kept in."""
        return self.dtype != self.master_dtype

    def read(self, path: str, *, keeps_weights: bool = False) -> CausalPolicy:
        """Read the whole model. A model that will be divided is read on the CPU and moves to the device part by part, since a device
        need not hold all of it.

        :param keeps_weights: a model hook may change the model, but not its weights."""
        device = torch.device("cpu") if self.ranks.layout.split else self.device
        trusted = self.context.trust_remote_code
        model = load_model(path, self.options.attention, device, self.master_dtype, trust_remote_code=trusted)
        if (hook := self.context.model_hook) is not None:
            from rlcore_plugin_torch.model_hook import hooked

            resumed = keeps_weights or (self.context.resumed and path == self.context.model)
            adapters = self.context.lora is not None
            model = hooked(hook, model, self.context.seed, resumed=resumed, adapters=adapters, trust_remote_code=trusted)
        return CausalPolicy(
            model=model,
            compute=self.dtype if self.rounds else None,
            chunk=self.options.logits_chunk,
            exact_head=self.options.head_dtype == "float32",
        )

    def attach(self, policy: CausalPolicy, path: str) -> Adapters | None:
        """Add adapters to the model that was read from ``path``; return None if all weights are trained."""
        if self.context.lora is None:
            return None
        from rlcore_plugin_torch.adapters import attach  # imported here so that only runs with adapters import PEFT

        files = fingerprint(Path(path)) or {HUB_COMMIT: str(getattr(policy.model.config, "_commit_hash", None))}
        return attach(policy.model, self.context.lora, path, files)

    def divide(self, policy: CausalPolicy) -> list[torch.nn.Parameter]:
        """Divide the policy as the layout says. Returns the parameters for which a tensor rank has only a part of the gradient."""
        layout = self.ranks.layout
        if not layout.split:
            return []
        partial: list[torch.nn.Parameter] = []
        if layout.tensor > 1:
            partial = slice_layers(policy.model, self.ranks.mesh["tensor"], self.device)
        names = {id(item): name for name, item in policy.named_parameters()}
        if layout.sharded:
            divide(policy, self.ranks.mesh["data"], reshards=layout.reshards)
        chosen = {names[id(item)] for item in partial}  # by name: FSDP2 replaces the parameters
        return [item for name, item in policy.named_parameters() if name in chosen]
