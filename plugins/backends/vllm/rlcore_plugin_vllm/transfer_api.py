"""All names of vllm that the trainer's side of its weight transfers uses, in one module; read in 0.32. Separate from ``vllm_api``, which
prepares a process for an engine: this process trains.

vllm/distributed/weight_transfer/: ``factory.py`` (both factories), ``base.py`` (``WeightSource``, ``ParamMeta``), ``ipc_engine.py`` and
``nccl_engine.py`` (the trainer's init info).
"""

from __future__ import annotations

import os
import warnings

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # about names of torch that vllm uses
    from vllm.distributed.weight_transfer import ParamMeta, WeightSource, WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

__all__ = ["IPCTrainerInitInfo", "NCCLTrainerInitInfo", "ParamMeta", "WeightSource", "WeightTransferTrainerFactory"]
