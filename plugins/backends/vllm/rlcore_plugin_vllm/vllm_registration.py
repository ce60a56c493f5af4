"""What vLLM loads in every one of its processes: the entry point ``rlcore`` of the group ``vllm.general_plugins``."""

from __future__ import annotations

__all__ = ["register"]

_done = False


def register() -> None:
    """Make ``weight_transfer_config = {"backend": "rlcore"}`` known to vLLM. Twice is once; the engine is imported when it is made."""
    global _done
    if _done:
        return
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    WeightTransferEngineFactory.register_engine("rlcore", "rlcore_plugin_vllm.worker_transfer", "ChosenTransferEngine")
    _done = True
