"""The function that vLLM loads in each of its processes: the entry point ``rlcore`` of the group ``vllm.general_plugins``."""

from __future__ import annotations

__all__ = ["register"]

_done = False


def register() -> None:
    """Register ``weight_transfer_config = {"backend": "rlcore"}`` with vLLM.

    A second call does nothing. The engine class is imported when it is created.
    """
    global _done
    if _done:
        return
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    WeightTransferEngineFactory.register_engine("rlcore", "rlcore_plugin_vllm.worker_transfer", "ChosenTransferEngine")
    _done = True
