"""What the decoder keeps between the forward and the backward pass: everything, or the input of each layer, on the device or on the host.

Layers are changed in place and keep their parameters and names. Apply this to a loaded model before anything wraps its layers
(``fully_shard``, ``parallelize_module``): what gathers the weights of a layer then also gathers them for the second forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from rlcore.api import ConfigError

__all__ = ["Activations", "input_on_host", "keep_layer_inputs", "store_activations", "tokens_on_cpu"]

Activations = Literal["keep", "recompute", "offload"]


_FORWARD_BYTES, _FEWEST = 128 << 20, 512
"""On a CPU a forward keeps about so much for its backward pass, but of no fewer tokens: beyond either it gets no faster."""


def tokens_on_cpu(model: PreTrainedModel) -> int:
    """Tokens of a forward on a CPU from which on more of them are no faster, and only cost memory: from hidden and intermediate size and
    layers.

    A layer of the Llama kind keeps eight tensors of the hidden size and three of the intermediate one. Measured by `make bench-peers`.
    """
    config = model.config.get_text_config(decoder=True)
    hidden = int(config.hidden_size)
    found = getattr(config, "intermediate_size", None)
    wide = found if isinstance(found, int) else 4 * hidden
    token = (8 * hidden + 3 * wide) * int(config.num_hidden_layers) * 4
    return max(_FEWEST, _FORWARD_BYTES // token)


def store_activations(model: PreTrainedModel, how: Activations) -> None:
    """Let each decoder layer keep its input alone until the backward pass, which runs the layer again (``recompute``).

    ``offload`` also moves that input to host memory meanwhile, which a CPU does not need; ``keep`` changes nothing.

    Gradients stay the same bit for bit, since the second forward pass computes what the first did. Raises ConfigError for a model without
    layers that transformers knows how to checkpoint. Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost"
    (arXiv 1604.06174), with one segment a layer.
    """
    if how == "keep":
        return
    if how == "offload" and model.device.type == "cpu":
        how = "recompute"
    keep_layer_inputs(model, offload=how == "offload")


def keep_layer_inputs(model: PreTrainedModel, *, offload: bool) -> None:
    """Wrap the forward of each layer; see ``store_activations``."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(
            f"training.options.activations: {type(model).__name__} has no layers of transformers' GradientCheckpointingLayer to run again; "
            "use 'keep'"
        )
    for layer in layers:
        layer.forward = partial(_run_again, layer.forward, offload)


def _run_again(forward: Callable[..., Any], offload: bool, hidden_states: torch.Tensor, *args: Any, **others: Any) -> Any:
    # Dropout is off, so no random state needs to be kept for the second pass.
    run = partial(checkpoint, forward, hidden_states, *args, use_reentrant=False, preserve_rng_state=False, **others)
    if not offload:
        return run()
    with input_on_host(hidden_states):
        return run()


def input_on_host(hidden: torch.Tensor) -> AbstractContextManager[None]:
    """Of what is saved for the backward pass, the layer's input goes to host memory; masks and positions, which all layers share, stay."""
    # The hooks outlive the forward pass: they must hold an address, not the tensor.
    address, shape, device = hidden.data_ptr(), hidden.shape, hidden.device

    def pack(saved: torch.Tensor) -> tuple[bool, torch.Tensor]:
        if saved.data_ptr() != address or saved.shape != shape:
            return False, saved
        host = torch.empty(saved.shape, dtype=saved.dtype, pin_memory=saved.is_cuda)
        # From pinned memory and to it, the device copies in the order of its stream; the allocator keeps the memory until it has.
        return True, host.copy_(saved.detach(), non_blocking=True)

    def unpack(packed: tuple[bool, torch.Tensor]) -> torch.Tensor:
        moved, saved = packed
        return saved.to(device, non_blocking=True) if moved else saved

    hooks: AbstractContextManager[None] = saved_tensors_hooks(pack, unpack)
    return hooks
