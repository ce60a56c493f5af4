"""The trackers ``tensorboard``, ``wandb`` and ``trackio``. Importing this loads none of their libraries."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import TrackerSpec, hookimpl

rlcore_api = "2.0"

_TRACKERS = (
    ("tensorboard", "TensorBoard", "TensorBoard's event files, in the run folder"),
    ("trackio", "Trackio", "Trackio, on this machine or in a Hugging Face Space"),
    ("wandb", "Wandb", "Weights & Biases, online or kept in the run folder"),
)
"""Name, which is also that of the library; prefix of the classes; summary."""


@hookimpl
def rlcore_register_trackers() -> Sequence[TrackerSpec]:
    """Return the spec of each tracker."""
    return [
        TrackerSpec(
            name=name,
            target=f"rlcore_plugin_trackers.{name}_tracker:{prefix}Tracker",
            config=f"rlcore_plugin_trackers.{name}_options:{prefix}Options",
            summary=summary,
            requires_module=name,
            install=f"pip install {name}",
        )
        for name, prefix, summary in _TRACKERS
    ]
