"""All names of sglang that this package uses, in one module, since its API changes between minor releases; tested with 0.5.23. Imported
only in the engine's own processes, on a CPU after ``cpu_shim.prepare_cpu``."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about kernels that are not for this machine
    from sglang.srt.entrypoints.engine import Engine
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.server_args import ServerArgs

__all__ = ["Engine", "GenerateReqInput", "ServerArgs", "argument_names"]


def argument_names() -> set[str]:
    """Return the names of the engine's arguments."""
    return set(getattr(ServerArgs, "__struct_fields__", ())) or set(getattr(ServerArgs, "__dataclass_fields__", {}))
