"""All names of vllm that this package uses, in one module, since its API changes between minor releases; tested with 0.32.

The engine reads its settings from the environment when it is imported and when it is created, so they are set before the import.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path

from rlcore_plugin_vllm.vllm_registration import register

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # an LLMEngine runs in this process; an AsyncLLM has processes anyway
for _name, _value in {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # otherwise it pins cores, and overwrites the threads that rlcore divided
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    # even small functions would need a compiler and minutes
    **({} if list(Path("/dev").glob("nvidia[0-9]*")) else {"TORCHDYNAMO_DISABLE": "1"}),
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",  # kernels for one matrix size each, 0.3 MB; 1024 of them look like a leak
    "PYTHONWARNINGS": "ignore:`torch.distributed.reduce_op` is deprecated",  # about a name that vllm's processes use
}.items():
    os.environ.setdefault(_name, _value)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # about names of torch that vllm uses
    from vllm import SamplingParams
    from vllm.config import ModelConfig
    from vllm.config.lora import MaxLoRARanks
    from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
    from vllm.inputs import TokensPrompt
    from vllm.lora.request import LoRARequest
    from vllm.outputs import RequestOutput
    from vllm.platforms import current_platform
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.engine.output_processor import RequestOutputCollector
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

register()
# Otherwise an engine that fails prints every request that it holds, several hundred kilobytes, before the error.
logging.getLogger("vllm.logging_utils.dump_input").setLevel(logging.CRITICAL)


def shut_down(engine: AsyncLLM) -> None:
    """End its processes and close its sockets; call this in its loop.

    If a process has died, the engine leaves its sockets to a callback that comes too late, and an open socket keeps the interpreter from
    ending. On a busy machine a process needs longer than the 5 s after which vLLM kills it, and a killed process leaves its shared memory.
    """
    engine.shutdown(timeout=20.0)
    engine.engine_core.ctx.destroy(linger=0)


__all__ = [
    "AsyncEngineArgs",
    "AsyncLLM",
    "EngineArgs",
    "EngineDeadError",
    "LLMEngine",
    "LoRARequest",
    "MaxLoRARanks",
    "ModelConfig",
    "MultiprocExecutor",
    "RequestOutput",
    "RequestOutputCollector",
    "RequestOutputKind",
    "SamplingParams",
    "TokensPrompt",
    "UniProcExecutor",
    "current_platform",
    "shut_down",
]
