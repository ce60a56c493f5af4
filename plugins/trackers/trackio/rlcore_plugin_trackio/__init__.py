"""The tracker ``trackio``: the figures of a run in Trackio. Importing this loads nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import TrackerSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_trackers() -> Sequence[TrackerSpec]:
    """Offer the tracker."""
    return [
        TrackerSpec(
            name="trackio",
            target="rlcore_plugin_trackio.trackio_tracker:TrackioTracker",
            config="rlcore_plugin_trackio.trackio_options:TrackioOptions",
            summary="Trackio, on this machine or in a Hugging Face Space",
        )
    ]
