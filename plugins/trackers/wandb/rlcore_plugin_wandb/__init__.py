"""The tracker ``wandb``: the figures of a run in Weights & Biases. Importing this loads nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import TrackerSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_trackers() -> Sequence[TrackerSpec]:
    """Offer the tracker."""
    return [
        TrackerSpec(
            name="wandb",
            target="rlcore_plugin_wandb.wandb_tracker:WandbTracker",
            config="rlcore_plugin_wandb.wandb_options:WandbOptions",
            summary="Weights & Biases, online or kept in the run folder",
        )
    ]
