"""The weight-transfer engine that vLLM's workers create: the one that the trainer names when it joins, created again for every group.

vLLM needs the transfer's name when an engine is created, and calls ``init_transfer_engine`` once in the engine's life. rlcore chooses the
transfer separately from the engine, and builds a new group whenever a member is lost. The class is registered in vLLM's own registry
(``register_engine``), under the entry point group ``vllm.general_plugins``, which every worker loads.
"""

from __future__ import annotations

from typing import Any

from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory

__all__ = ["NAME", "ChosenTransferEngine"]

NAME = "rlcore"


class ChosenTransferEngine(WeightTransferEngine):  # type: ignore[misc]
    """A transfer engine that passes all calls on to the engine that the trainer named."""

    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        super().__init__(config, vllm_config, device, model)
        self._chosen: Any = None

    def parse_init_info(self, init_dict: dict[str, Any]) -> Any:
        """Create the engine ``init_dict["backend"]``; the previous one is freed."""
        words = dict(init_dict)
        config = WeightTransferConfig(backend=words.pop("backend"))
        self.shutdown()
        self._chosen = WeightTransferEngineFactory.create_engine(config, self.vllm_config, self.device, self.model)
        return self._chosen.parse_init_info(words)

    def init_transfer_engine(self, init_info: Any) -> None:
        """Initialise the chosen engine; the following methods also call that engine."""
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
        """Free the resources of the chosen engine, if there is one."""
        if self._chosen is not None:
            self._chosen.shutdown()
            self._chosen = None
