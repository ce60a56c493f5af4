"""The tracker ``tensorboard``: the figures of a run as event files. Importing this loads nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import TrackerSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_trackers() -> Sequence[TrackerSpec]:
    """Offer the tracker."""
    return [
        TrackerSpec(
            name="tensorboard",
            target="rlcore_plugin_tensorboard.tensorboard_tracker:TensorBoardTracker",
            config="rlcore_plugin_tensorboard.tensorboard_options:TensorBoardOptions",
            summary="TensorBoard's event files, in the run folder",
        )
    ]
