"""The weight transfer ``shared``: memory that the trainer and every producer of one host map. Importing this loads no numpy."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rlcore.api import WeightTransferSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_weight_transfers() -> Sequence[WeightTransferSpec]:
    """Offer ``shared``."""
    return [
        WeightTransferSpec(
            name="shared",
            target="rlcore_plugin_shared.shared:SharedTransfer",
            summary="One copy into memory that every process of the host maps; Linux",
            reach="host",
            preference=10,
            unusable="" if hasattr(os, "memfd_create") else "this Python has no os.memfd_create (Linux only)",
        )
    ]
