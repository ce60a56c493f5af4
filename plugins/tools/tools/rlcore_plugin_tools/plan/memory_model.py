"""The bytes that one trainer rank needs, by arithmetic: no device is queried and nothing is started.

The numbers describe the trainer ``torch``: AdamW, weights, gradients and moments in float32 (float64 if asked), the forward in ``dtype``.
Sources: ZeRO (arXiv 1910.02054), section 3.1, for the model's state; Korthikanti et al. (arXiv 2205.05198), section 4, for the method of
counting activations. Here it is applied to a gated MLP, RMS norms in float32, and attention that does not store the matrix of scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from rlcore.api import ConfigError
from rlcore_plugin_tools.plan.model_shape import DecoderShape

__all__ = ["RankBytes", "TrainerSetting", "bytes_of_rank", "layouts_of"]

_MASTER = {"float32": 4, "bfloat16": 4, "float64": 8}
_COMPUTE = {"float32": 4, "bfloat16": 2, "float64": 8}
_LOGITS = 1 << 27
"""Logits that the trainer holds at a time on a device; below it, the fewest entries of the vocabulary that it takes."""
_LEAST_ENTRIES = 256
_EXCHANGED = 1 << 24
"""Elements of gradients that ranks without ZeRO sum at a time."""
_STREAMED = 1 << 28
"""Bytes of moments on the device at a time, if they are stored on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSetting:
    """The settings that determine the memory of a rank: the layout (``ranks`` = data-parallel x ``tensor``, ZeRO stage), precision, tokens
    of one forward, rank of LoRA (0: none), activations that are kept, state that is offloaded to the host, whether there is a reference
    model, MiB of a weight bucket."""

    ranks: int = 1
    tensor: int = 1
    zero: int = 0
    dtype: str = "bfloat16"
    tokens: int = 16_384
    lora_rank: int = 0
    activations: str = "keep"
    offload: tuple[str, ...] = ()
    reference: bool = False
    bucket_mb: int = 256

    @property
    def data(self) -> int:
        """The number of data-parallel ranks. Raises ConfigError if tensor-parallel groups do not fill the ranks."""
        if self.ranks % self.tensor:
            raise ConfigError(
                f"-t {self.ranks}: each copy of the model takes -tp {self.tensor} ranks; type a multiple, for example -t {self.tensor}"
            )
        return self.ranks // self.tensor

    @property
    def flags(self) -> str:
        """The flags of the layout."""
        tensor = f" -tp {self.tensor}" if self.tensor > 1 else ""
        return f"-t {self.ranks}{tensor}{f' -zero {self.zero}' if self.zero else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBytes:
    """Bytes on the device of one rank. ``gathered``: weights of other ranks, and copies in the precision of the forward, during the
    computation; ``exchange``: elements that ranks sum or publish at a time."""

    weights: int
    gradients: int
    moments: int
    reference: int
    gathered: int
    activations: int
    logits: int
    exchange: int

    @property
    def resident(self) -> int:
        """Bytes between two updates."""
        return self.weights + self.moments + self.reference

    @property
    def peak(self) -> int:
        """The most bytes during an update. Publishing weights, without gradients and activations, needs less or about as much."""
        update = self.gradients + self.gathered + self.activations + self.logits
        return self.resident + max(update + self.exchange * (self.gathered == 0), self.exchange)


def bytes_of_rank(shape: DecoderShape, setting: TrainerSetting) -> RankBytes:
    """Return the memory of a rank. Raises ConfigError for a layout that does not divide the heads evenly."""
    _check(shape, setting)
    master = _MASTER[setting.dtype]
    shards = setting.data if setting.zero else 1
    held = ceil(_slice(shape, setting.tensor) / shards)
    trained = ceil(_adapters(shape, setting) / shards) if setting.lora_rank else held
    frozen = held + trained if setting.lora_rank else held
    return RankBytes(
        weights=master * frozen,
        gradients=master * trained,
        moments=min(2 * master * trained, _STREAMED) if "optimizer" in setting.offload else 2 * master * trained,
        reference=master * held * (setting.reference and not setting.lora_rank and "reference" not in setting.offload),
        gathered=_gathered(shape, setting),
        activations=_activations(shape, setting),
        logits=_logits(shape, setting),
        exchange=_exchange(setting, master),
    )


def _check(shape: DecoderShape, setting: TrainerSetting) -> None:
    if shape.heads % setting.tensor or shape.kv_heads % setting.tensor:
        raise ConfigError(
            f"-tp {setting.tensor}: the {shape.heads} heads and {shape.kv_heads} key-value heads of {shape.name} are not divisible by it; "
            f"type -tp {_largest_divisor(shape, setting.tensor)}"
        )


def _largest_divisor(shape: DecoderShape, most: int) -> int:
    return max(size for size in range(1, most + 1) if shape.heads % size == 0 and shape.kv_heads % size == 0)


def _slice(shape: DecoderShape, tensor: int) -> int:
    """Return the parameters of a tensor-parallel rank: its slice of every linear layer, and all norms and embeddings."""
    return shape.layers * (shape.layer_matrices // tensor + shape.layer_norms) + shape.outside


def _adapters(shape: DecoderShape, setting: TrainerSetting) -> int:
    """Return the parameters of adapters on every linear layer: r (inputs + outputs) each (LoRA, arXiv 2106.09685). Tensor parallelism
    divides the matrix on the side on which it cuts the layer: o and down by their inputs, the others by their outputs."""
    by_inputs = (False, False, False, True, False, False, True)
    sizes = [
        inputs // setting.tensor + outputs if cut else inputs + outputs // setting.tensor
        for cut, (inputs, outputs) in zip(by_inputs, shape.linears, strict=True)
    ]
    return setting.lora_rank * shape.layers * sum(sizes)


def _gathered(shape: DecoderShape, setting: TrainerSetting) -> int:
    """Return the bytes of whole weights in addition to the rank's share. ZeRO 1 and 2 gather all layers until their backward; ZeRO 3
    gathers two of them (one computes, the next arrives). Embeddings are always gathered. In bfloat16 add the copies that autocast makes of
    linear layers."""
    master, compute = _MASTER[setting.dtype], _COMPUTE[setting.dtype]
    matrices = shape.layer_matrices // setting.tensor
    whole = 0
    alive = shape.layers if setting.zero < 3 or setting.data == 1 else min(2, shape.layers)
    if setting.zero and setting.data > 1:
        # The gradients of the layer whose backward ran first wait for their sum as the layers do: one more layer.
        whole = master * (alive * (matrices + shape.layer_norms) + shape.outside + matrices + shape.layer_norms)
    # Autocast keeps its copies of trained weights until the end of the forward, and of frozen ones as long as their layer keeps them.
    copied = 1 if setting.lora_rank and setting.activations != "keep" else shape.layers
    return whole + (compute * copied * matrices if compute < master else 0)


def _activations(shape: DecoderShape, setting: TrainerSetting) -> int:
    """Return the bytes of activations. Per token and layer: input and normalised input of two norms in float32 and their two outputs; q, k,
    v and the output of attention; gate, its activation, up and their product. Tensor parallelism divides the activations inside attention
    and MLP."""
    master, compute = _MASTER[setting.dtype], _COMPUTE[setting.dtype]
    inside = (2 * shape.queries + 2 * shape.keys + 4 * shape.intermediate) // setting.tensor
    norms = master * 2 * (shape.queries + shape.keys) // setting.tensor * shape.head_norms
    layer = master * 4 * shape.hidden + norms + compute * (2 * shape.hidden + inside)
    last = master * 3 * shape.hidden
    if setting.activations == "keep":
        return setting.tokens * (shape.layers * layer + last)
    kept = shape.layers if setting.activations == "recompute" else 2
    return setting.tokens * (kept * master * shape.hidden + layer + last)


def _logits(shape: DecoderShape, setting: TrainerSetting) -> int:
    """Return the bytes of a block of logits. In bfloat16 add the block in which the product is computed and the block to which its gradient
    is rounded. Add the gradient of the projection, which is summed with those of earlier forwards, unless the projection is frozen."""
    compute = _COMPUTE[setting.dtype]
    exact = max(4, compute)
    entries = min(shape.vocabulary, max(_LEAST_ENTRIES, _LOGITS // setting.tokens))
    block = setting.tokens * entries * (exact + (2 * compute if compute < exact else 0))
    head = 0 if setting.lora_rank else shape.vocabulary * shape.hidden * _MASTER[setting.dtype]
    return block + head


def _exchange(setting: TrainerSetting, master: int) -> int:
    bucket = setting.bucket_mb << 20 if setting.zero or setting.tensor > 1 else 0
    summed = 2 * _EXCHANGED * master if setting.data > 1 and not setting.zero else 0
    return max(bucket, summed)


def layouts_of(shape: DecoderShape, setting: TrainerSetting, typed: bool) -> Sequence[TrainerSetting]:
    """Return the layout that was typed, or several to choose from, with tensor parallelism as far as the heads allow."""
    if typed:
        return (setting,)
    tensor = _largest_divisor(shape, 8)
    several = ((8, 1, 0), (8, 1, 2), (8, 1, 3), *(((tensor, tensor, 0), (8 * tensor, tensor, 3)) if tensor > 1 else ()))
    return tuple(replace(setting, ranks=ranks, tensor=size, zero=zero) for ranks, size, zero in ((1, 1, 0), *several))
