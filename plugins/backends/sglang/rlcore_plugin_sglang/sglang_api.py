"""Everything of sglang that this package uses, in one place, since its API moves between minor releases; tested with 0.5.23. Imported in
the engine's own processes alone, after ``cpu_shim.prepare_cpu`` on a CPU."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of kernels that are not for this machine
    from sglang.srt.entrypoints.engine import Engine
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.server_args import ServerArgs

__all__ = ["Engine", "GenerateReqInput", "ServerArgs", "argument_names"]


def argument_names() -> set[str]:
    """The names of the engine's arguments."""
    return set(getattr(ServerArgs, "__struct_fields__", ())) or set(getattr(ServerArgs, "__dataclass_fields__", {}))
