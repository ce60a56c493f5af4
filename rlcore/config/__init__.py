"""The run configuration: the typed model, layers of settings with their origins, rules, and the plan that ``train`` runs."""

from __future__ import annotations

from rlcore.config.layers import Origin, TypedFlag
from rlcore.config.plan import Plan, plan_run
from rlcore.config.plugin_selection import Missing
from rlcore.config.run_config import RunConfig
from rlcore.config.toml_text import to_toml

__all__ = ["Missing", "Origin", "Plan", "RunConfig", "TypedFlag", "plan_run", "to_toml"]
