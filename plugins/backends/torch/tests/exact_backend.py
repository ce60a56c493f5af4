"""The torch backend with a model that computes in float64 throughout, so that differences of 1e-9 show."""

from __future__ import annotations

import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.policy import CausalPolicy

__all__ = ["ExactBackend", "make_norms_exact"]


def make_norms_exact(model: torch.nn.Module) -> None:
    """The norms of transformers round to float32, so torch's take their place (same function) in a model of float64."""
    for name, module in list(model.named_modules()):
        if type(module).__name__.endswith("RMSNorm"):
            exact = torch.nn.RMSNorm(module.weight.shape, eps=module.variance_epsilon, dtype=torch.float64)
            exact.weight.data.copy_(module.weight.data)
            model.set_submodule(name, exact)


class ExactBackend(TorchBackend):
    """Exact where the context says float64, else as it is."""

    def _load(self, path: str) -> CausalPolicy:
        policy = super()._load(path)
        if self.context.dtype == "float64":
            make_norms_exact(policy.model)
        return policy
