"""The engine of vLLM's weight transfers that its workers make: the one that the trainer names when it joins, made anew for every group.

vLLM wants the transfer's name when an engine is made, and asks for ``init_transfer_engine`` once in its life; rlcore chooses the transfer
apart from the engine, and builds a group anew whenever a member is lost. Registered by vLLM's own registry (``register_engine``), under the
entry point group ``vllm.general_plugins``, which every worker loads.
"""

from __future__ import annotations

from typing import Any

from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory

__all__ = ["NAME", "ChosenTransferEngine"]

NAME = "rlcore"


class ChosenTransferEngine(WeightTransferEngine):  # type: ignore[misc]
    """Hands everything on to the engine that the trainer named."""

    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        super().__init__(config, vllm_config, device, model)
        self._chosen: Any = None

    def parse_init_info(self, init_dict: dict[str, Any]) -> Any:
        """Make the engine ``init_dict["backend"]``; what is left of the one before is freed."""
        words = dict(init_dict)
        config = WeightTransferConfig(backend=words.pop("backend"))
        self.shutdown()
        self._chosen = WeightTransferEngineFactory.create_engine(config, self.vllm_config, self.device, self.model)
        return self._chosen.parse_init_info(words)

    def init_transfer_engine(self, init_info: Any) -> None:
        """Of the engine that was chosen, as all that follows."""
        self._chosen.init_transfer_engine(init_info)

    def start_weight_update(self) -> None:
        """See ``WeightTransferEngine``."""
        self._chosen.start_weight_update()

    def update_weights(self, update_info: Any) -> None:
        """See ``WeightTransferEngine``."""
        self._chosen.update_weights(update_info)

    def receive_weights(self, update_info: Any) -> None:
        """See ``WeightTransferEngine``."""
        self._chosen.receive_weights(update_info)

    def finish_weight_update(self) -> None:
        """See ``WeightTransferEngine``."""
        self._chosen.finish_weight_update()

    def shutdown(self) -> None:
        """Free what the chosen engine holds; nothing if there is none."""
        if self._chosen is not None:
            self._chosen.shutdown()
            self._chosen = None
