"""The runtime ``local``: producers and trainer ranks as processes of this machine. Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import RuntimeSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_runtimes() -> Sequence[RuntimeSpec]:
    """Offer ``local``."""
    return [
        RuntimeSpec(
            name="local",
            target="rlcore_plugin_processes.local:LocalCrew",
            summary="On this machine: one producer and one trainer in turns in one process, else processes that work at the same time",
            reach="host",
            in_turns=True,
            settings=(
                "run.master_port",
                "schedule.producer_restarts",
                "schedule.producer_deadline",
                "schedule.producer_load_deadline",
                "schedule.heartbeat_deadline",
                "schedule.lease_deadline",
                "schedule.trainer_deadline",
                "inference.environment",
                "training.environment",
            ),
            preference=10,
        )
    ]
