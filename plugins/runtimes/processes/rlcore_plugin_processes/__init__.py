"""The runtime ``local``, with producers and trainer ranks as processes of this machine, and the weight transfer ``shared``, whose memory
they map. Importing this module does not load numpy."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rlcore.api import RuntimeSpec, WeightTransferSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_runtimes() -> Sequence[RuntimeSpec]:
    """Register the runtime ``local``."""
    return [
        RuntimeSpec(
            name="local",
            target="rlcore_plugin_processes.local:make_runtime",
            summary="On this machine: one producer and one trainer alternate in one process, else several processes work at the same time",
            reach="host",
            alternating=True,
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


@hookimpl
def rlcore_register_weight_transfers() -> Sequence[WeightTransferSpec]:
    """Register the weight transfer ``shared``."""
    return [
        WeightTransferSpec(
            name="shared",
            target="rlcore_plugin_processes.shared:SharedTransfer",
            summary="One copy into memory that every process of the host maps; Linux",
            reach="host",
            preference=10,
            unusable="" if hasattr(os, "memfd_create") else "this Python has no os.memfd_create (Linux only)",
        )
    ]
