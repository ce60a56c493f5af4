"""The settings that a run needs so that its producers can use servers; checked before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

__all__ = ["run_problems"]


def run_problems(config: Any) -> list[str]:
    """Return one sentence for each problem."""
    options, problems = config.inference.options, []
    addresses = options.get("addresses", ())
    producers = config.inference.num_inferencer
    if len(addresses) < producers:
        problems.append(
            f"inference.options.addresses names {len(addresses)} servers for {producers} producers, each of which updates its own "
            f"servers; name more, or type -i {max(1, len(addresses))}"
        )
    if len({address.lower().rstrip("/") for address in addresses}) < len(addresses):
        problems.append("inference.options.addresses names a server twice; a server belongs to one producer, so leave the second out")
    folder, remote = options.get("shared_folder"), config.weights.transport.lower() == "vllm_nccl"
    if remote and len(addresses) != producers:
        problems.append(
            f"--transport vllm_nccl sends to one server per producer, but inference.options.addresses names {len(addresses)} for "
            f"{producers}; type --transport auto, or as many producers (-i) as servers"
        )
    if remote:
        return problems
    if folder is None and not config.data.sources:  # nothing is trained
        return problems
    if folder is None:
        problems.append(
            "inference.options.shared_folder is not set, but training writes new weights for the servers; name a folder that producers and "
            "servers see"
        )
    elif not Path(folder).is_dir():
        problems.append(f"inference.options.shared_folder {str(folder)!r} is not a folder here; create it where the servers see it too")
    elif not os.access(folder, os.W_OK):
        problems.append(f"inference.options.shared_folder {str(folder)!r} cannot be written here; name a writable folder")
    return problems
