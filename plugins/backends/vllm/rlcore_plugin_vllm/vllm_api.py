"""Everything of vllm that this package uses, in one place, since its API moves between minor releases; tested with 0.32.

The engine reads its settings from the environment when it is imported and when it is made, so they are set before the import.
"""

from __future__ import annotations

import logging
import os
import warnings

from rlcore_plugin_vllm.vllm_registration import register

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine lives in this process, and the producer's thread steps it
for _name, _value in {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else it pins cores, and overwrites the threads that rlcore divided
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
}.items():
    os.environ.setdefault(_name, _value)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # of torch's names that vllm uses
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.inputs import TokensPrompt
    from vllm.outputs import RequestOutput
    from vllm.platforms import current_platform
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.llm_engine import LLMEngine

register()
# Else an engine that fails prints every request that it holds, some hundred kilobytes, before the error.
logging.getLogger("vllm.logging_utils.dump_input").setLevel(logging.CRITICAL)

__all__ = ["EngineArgs", "LLMEngine", "RequestOutput", "RequestOutputKind", "SamplingParams", "TokensPrompt", "current_platform"]
