"""Tensor parallelism: the linear layers of every decoder layer, divided over the tensor axis by the model's own plan.

The plan (``model.tp_plan`` of transformers) says which layer is cut along its outputs and which along its inputs. torch's
``parallelize_module`` cuts them. The styles of transformers itself are not used: one of them sums a norm's gradient over the ranks after
every backward pass, including the part that earlier micro-batches left in it. Embeddings and the output head stay whole on every rank.

Source: Shoeybi et al., "Megatron-LM" (arXiv 1909.08053), section 3.
"""

from __future__ import annotations

import re

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from transformers import PreTrainedModel

from rlcore.api import ConfigError
from rlcore_plugin_torch.decoder import decoder_layers
from rlcore_plugin_torch.tensor_trial import check_sliced, probed

__all__ = ["check_heads", "planned", "slice_layers"]

_STYLES: dict[str, type[ParallelStyle]] = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
_PARTIAL = "replicated_with_grad_allreduce"
"""The style of a norm that every rank holds and applies to its own heads: each rank has a part of its gradient."""


def check_heads(model: PreTrainedModel, ranks: int) -> None:
    """Raise ConfigError if the heads cannot be divided into equal numbers of whole heads for ``ranks``."""
    config = model.config.get_text_config(decoder=True)
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, name, None)
        if isinstance(heads, int) and heads % ranks:
            raise ConfigError(
                f"training.tensor_parallel_size {ranks}: the model has {name} {heads}, but every rank needs the same number of heads; "
                f"type -tp with a number that divides {heads}"
            )


def slice_layers(model: PreTrainedModel, mesh: DeviceMesh, device: torch.device) -> list[torch.nn.Parameter]:
    """Cut the decoder layers over ``mesh`` (one axis) and move the model to ``device``.

    Returns the parameters for which each rank has only a part of the gradient. Raises ConfigError if the model has no plan, if its plan has
    a style that is not known here, or if the model computes something else after the cut.
    """
    check_heads(model, mesh.size())
    styles, partial = planned(model, mesh.size())
    with torch.no_grad():
        before = probed(model).cpu()
    parallelize_module(model, mesh, styles, src_data_rank=None)  # type: ignore[arg-type]
    model.to(device)
    check_sliced(model, mesh, before, partial)
    return partial


def planned(model: PreTrainedModel, ranks: int) -> tuple[dict[str, ParallelStyle], list[torch.nn.Parameter]]:
    """Return the style of each linear layer to cut, by name, and the parameters that ``slice_layers`` returns.

    Raises ConfigError if the layers cannot be cut over ``ranks``.
    """
    layers = [module for layer in decoder_layers(model) for module in layer.modules()]
    inside, plan = {id(module) for module in layers}, dict(model.tp_plan or {})
    styles: dict[str, ParallelStyle] = {}
    partial: list[torch.nn.Parameter] = []
    for name, module in model.named_modules():
        style = plan.get(re.sub(r"\.\d+(?=\.|$)", ".*", name))
        if style is None or id(module) not in inside:
            continue
        if style == _PARTIAL:
            partial += module.parameters(recurse=False)
            continue
        for below, part in _linear_parts(name, module, style).items():
            styles[below] = _style(model, below, part, style, ranks)
    if not styles:
        raise ConfigError(
            f"training.tensor_parallel_size {ranks}: transformers has no tensor parallel plan (base_model_tp_plan) for "
            f"{type(model).__name__}; type -tp 1, and -zero 3 to divide the model"
        )
    return styles, partial


def _linear_parts(name: str, module: torch.nn.Module, style: str) -> dict[str, torch.nn.Module]:
    """Return the modules of a layer that are cut, by name: the layer itself, or two modules of a layer with an adapter.

    These two are the layer below the adapter and the matrix on the side that the style cuts. The other matrix and its gradient stay whole
    on every rank, because the vector between the two matrices is whole.
    """
    if not hasattr(module, "base_layer"):
        return {name: module}
    matrix = "lora_B" if style == "colwise" else "lora_A"
    return {f"{name}.{below}": module.get_submodule(below) for below in ("base_layer", f"{matrix}.default")}


def _style(model: PreTrainedModel, name: str, module: torch.nn.Module, style: str, ranks: int) -> ParallelStyle:
    owner = f"training.tensor_parallel_size {ranks}: {type(model).__name__} plans style {style!r} for {name!r}"
    if style not in _STYLES or not isinstance(module, torch.nn.Linear):
        what = "which" if style not in _STYLES else f"a {type(module).__name__}, which"
        raise ConfigError(f"{owner}, {what} the torch backend does not divide; type -tp 1, and -zero 3 to divide the model")
    width = module.out_features if style == "colwise" else module.in_features
    if width % ranks:
        raise ConfigError(f"{owner}, whose width {width} is not divisible by {ranks}; type -tp with a number that divides it")
    return _STYLES[style]()
