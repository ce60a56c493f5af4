"""The activations that the decoder keeps between the forward and the backward pass: all, or each layer's input, on the device or the host.

Layers are changed in place and keep their parameters and names. Apply this to a loaded model before its layers are wrapped
(``fully_shard``, ``parallelize_module``). The wrapper that gathers the weights of a layer then also gathers them for the second forward
pass.
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
"""Bytes that a forward pass on a CPU keeps for its backward pass, and the fewest tokens of a forward. More of either is not faster."""


def tokens_on_cpu(model: PreTrainedModel) -> int:
    """Return the number of tokens above which a forward pass on a CPU gets no faster and only needs more memory.

    It follows from the hidden size, the intermediate size and the number of layers. A layer of the Llama kind keeps eight tensors of the
    hidden size and three of the intermediate size. Measured by `make bench-peers`.
    """
    config = model.config.get_text_config(decoder=True)
    hidden = int(config.hidden_size)
    found = getattr(config, "intermediate_size", None)
    wide = found if isinstance(found, int) else 4 * hidden
    token = (8 * hidden + 3 * wide) * int(config.num_hidden_layers) * 4
    return max(_FEWEST, _FORWARD_BYTES // token)


def store_activations(model: PreTrainedModel, how: Activations) -> None:
    """Let each decoder layer keep only its input until the backward pass, which then runs the layer again (``recompute``).

    ``offload`` also moves that input to host memory in the meantime, which has no use on a CPU; ``keep`` changes nothing.

    Gradients stay the same bit for bit, since the second forward pass computes the same as the first. Raises ConfigError for a model
    without layers that transformers can checkpoint. Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv
    1604.06174), with one segment per layer.
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
    # Dropout is off, so the second pass needs no saved random state.
    run = partial(checkpoint, forward, hidden_states, *args, use_reentrant=False, preserve_rng_state=False, **others)
    if not offload:
        return run()
    with input_on_host(hidden_states):
        return run()


def input_on_host(hidden: torch.Tensor) -> AbstractContextManager[None]:
    """Return a context that moves the layer's input to host memory when it is saved for the backward pass.

    Masks and positions stay on the device, because all layers share them.
    """
    # The hooks outlive the forward pass: they must hold an address, not the tensor.
    address, shape, device = hidden.data_ptr(), hidden.shape, hidden.device

    def pack(saved: torch.Tensor) -> tuple[bool, torch.Tensor]:
        if saved.data_ptr() != address or saved.shape != shape:
            return False, saved
        host = torch.empty(saved.shape, dtype=saved.dtype, pin_memory=saved.is_cuda)
        # The device copies to and from pinned memory in the order of its stream. The allocator keeps the memory until the copy is done.
        return True, host.copy_(saved.detach(), non_blocking=True)

    def unpack(packed: tuple[bool, torch.Tensor]) -> torch.Tensor:
        moved, saved = packed
        return saved.to(device, non_blocking=True) if moved else saved

    hooks: AbstractContextManager[None] = saved_tensors_hooks(pack, unpack)
    return hooks
