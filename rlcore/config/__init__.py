"""The run configuration: typed model, layers with origins, rules, and the plan that ``train`` runs."""

from __future__ import annotations

from rlcore.config.chosen import Missing
from rlcore.config.layers import Origin, Typed
from rlcore.config.model import RunConfig
from rlcore.config.plan import Plan, plan_run
from rlcore.config.toml_text import to_toml

__all__ = ["Missing", "Origin", "Plan", "RunConfig", "Typed", "plan_run", "to_toml"]
