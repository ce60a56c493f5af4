"""What a frozen player is, and the plan that loads it. This module knows no HTTP and no process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rlcore.api import ConfigError
from rlcore.api.commands import Plan, Registry, plan_run

__all__ = ["FrozenModel"]

_NEEDED = ("model.", "inference.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenModel:
    """A model, its engine, and how it answers as the player ``name``. ``temperature`` and ``top_p``: None for those of the run.

    ``context``: the largest number of tokens of a request with its answer.
    """

    name: str
    model: str
    backend: str = "transformers"
    backend_options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    device: str = "auto"
    seed: int = 0
    context: int = 4096
    temperature: float | None = None
    top_p: float | None = None
    history: Literal["as_sampled", "template"] = "as_sampled"
    tool_parser: str = "auto"

    def plan(self, registry: Registry) -> Plan:
        """Return the plan of a run whose policy it is. Raises ConfigError or PluginError if its engine cannot serve it."""
        settings = {
            "run.seed": self.seed,
            "model.model": self.model,
            "inference.name": self.backend,
            "inference.options": dict(self.backend_options),
            "inference.dtype": self.dtype,
            "inference.device": self.device,
            "sampling.max_new_tokens": max(1, self.context - 1),
            "sampling.max_context_tokens": self.context,
            "algorithm.kl_coeff": 0.0,
        }
        plan = plan_run([], {}, registry, overrides=settings, require=False)
        if missing := [item.what for item in plan.missing if item.path.startswith(_NEEDED)]:
            raise ConfigError("; ".join(missing))
        return plan
