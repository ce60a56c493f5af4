"""The engines of this process. vLLM keeps its process groups in module variables, and the end of one engine removes them for every
engine of the process. So an engine that is ended while others run is freed with the last one."""

from __future__ import annotations

import warnings

from rlcore_plugin_vllm.vllm_api import EngineArgs, LLMEngine

__all__ = ["end_engine", "make_engine"]

_running: list[LLMEngine] = []
_ended: list[LLMEngine] = []


def make_engine(arguments: EngineArgs) -> LLMEngine:
    """Create an engine that exists until ``end_engine``, even if nothing refers to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about names of torch that vllm uses
        engine = LLMEngine.from_engine_args(arguments)
    _running.append(engine)
    return engine


def end_engine(engine: LLMEngine) -> None:
    """Free the engine once no other engine runs in this process."""
    _running.remove(engine)
    _ended.append(engine)
    if not _running:
        while _ended:
            _ended.pop().engine_core.shutdown()
