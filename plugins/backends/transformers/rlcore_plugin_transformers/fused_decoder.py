"""One decode step in few operations, for decoders of the Llama kind in float32: RMS norms before attention and MLP, rotary positions, and a
gated MLP. Biases, and norms of queries and keys, are included if the model has them.

Shapes: ``n`` rows, ``H`` hidden size, ``h`` query heads, ``k`` heads of keys and values, ``m`` = h / k, ``d`` head size, ``P`` columns of
prompts, ``c`` columns of generated tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import rms_norm, silu
from transformers import PreTrainedModel

from rlcore_plugin_transformers.cache import RowCache

__all__ = ["FusedDecoder", "Sharing"]

_SERVED = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Model types whose layers compute the same function as this module, for any weights."""
_FEWEST = 400
"""The number of multiplications of one product in a batch below which torch, on a CPU, does not call its library and is several times
slower."""


class FusedDecoder:
    """The decode step of one model, over the keys and values of a ``RowCache``.

    It uses the model's own weights. Weights that are multiplied together are adjacent in one tensor, and the parameters are views of it. So
    an update that copies into the parameters reaches both paths. If a parameter gets other memory (after a sleep), create a new decoder.
    """

    def __init__(self, model: PreTrainedModel, max_tokens: int) -> None:
        """Prepare sequences of at most ``max_tokens`` tokens, for a model that ``serves`` accepts."""
        decoder = model.get_decoder()
        config = model.config.get_text_config(decoder=True)
        self._embedding: torch.Tensor = decoder.embed_tokens.weight
        self._norm = _Norm.of(decoder.norm)
        self._head = _Product.of([model.get_output_embeddings()])
        kinds = getattr(config, "layer_types", None) or [""] * len(decoder.layers)
        self._layers = [_Layer.of(layer, kind) for layer, kind in zip(decoder.layers, kinds, strict=True)]
        first = self._layers[0]
        size = len(decoder.layers[0].self_attn.k_proj.weight) // first.shared
        self.fewest_columns = -(-_FEWEST * first.shared // (first.heads * size))
        """With fewer columns of generated tokens, attention of a row is slower, not faster."""
        positions = torch.arange(max_tokens, device=self._embedding.device)[None]
        self._cosine, self._sine = (table[0] for table in decoder.rotary_emb(self._embedding[:1, None], positions))
        """float32[max_tokens, d]. The first half of a head's sine is negated, because the other half is added to it with that sign."""
        self._sine = torch.cat((-self._sine[:, : self._sine.shape[1] // 2], self._sine[:, self._sine.shape[1] // 2 :]), dim=1)

    @staticmethod
    def serves(model: PreTrainedModel) -> bool:
        """Return whether this class supports the model's type and precision. It supports CPUs only: it was never run on CUDA."""
        known = model.config.model_type in _SERVED and model.config.hidden_act == "silu"
        return known and model.dtype == torch.float32 and model.device.type == "cpu"

    def __call__(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        masks: Mapping[str, torch.Tensor],
        cache: RowCache,
        prompts: RowCache,
        sharing: Sharing,
    ) -> torch.Tensor:
        """int64[n] tokens at int64[n] positions, masks float[n, 1, 1, P + c] by kind of layer -> float32[n, V] logits.

        A single mask serves all kinds. The caller has called ``begin_decode`` of ``cache`` for this step.
        """
        hidden = self._embedding.index_select(0, tokens)
        rotation = self._cosine.index_select(0, positions)[:, None], self._sine.index_select(0, positions)[:, None]
        only = next(iter(masks.values())) if len(masks) == 1 else None
        for number, layer in enumerate(self._layers):
            mixed = layer.project(hidden, rotation)
            keys, values = cache.append(number, mixed.keys, mixed.values)
            prompt = prompts.held(number, sharing.slots, sharing.width)
            attended = _attend(mixed.queries, (keys, values), prompt, masks[layer.kind] if only is None else only, sharing)
            hidden = layer.finish(attended, hidden)
        return self._head(self._norm(hidden))


@dataclass(frozen=True, slots=True)
class Sharing:
    """The rows that share each prompt.

    ``rows`` int64[slots x most]: the rows of each slot, filled up with its first row. ``places`` int64[n]: the index of each row in
    ``rows``. ``lengths`` int64[n]: of each row's prompt. ``visible`` bool[n, width]: the columns of the slot that belong to the row's
    prompt.
    """

    rows: torch.Tensor
    places: torch.Tensor
    lengths: torch.Tensor
    visible: torch.Tensor
    slots: int
    most: int
    width: int

    @classmethod
    def of(cls, slot: np.ndarray, lengths: np.ndarray, device: torch.device) -> Sharing:
        """Build the sharing from the slot of each row, int64[n], and the prompt's length in each slot, int64[slots]; every slot has a
        row."""
        counts = np.bincount(slot, minlength=len(lengths))
        order = np.argsort(slot, kind="stable")
        first = np.cumsum(counts) - counts
        rank = np.empty_like(order)
        rank[order] = np.arange(len(slot)) - first[slot[order]]
        most, width = int(counts.max()), int(lengths.max())
        rows = np.repeat(order[first], most)
        places = slot * most + rank
        rows[places] = np.arange(len(slot))
        visible = np.arange(width) < lengths[slot][:, None]
        tensors = (torch.from_numpy(array).to(device) for array in (rows, places, lengths[slot], visible))
        return cls(*tensors, slots=len(lengths), most=most, width=width)

    def together(self, values: torch.Tensor) -> torch.Tensor:
        """[n, k, m, x] -> [slots, k, most x m, x]: put the values of the rows of a slot one after another."""
        _, shared, many, size = values.shape
        by_slot = values.index_select(0, self.rows).view(self.slots, self.most, shared, many, size)
        return by_slot.transpose(1, 2).reshape(self.slots, shared, self.most * many, size)

    def apart(self, values: torch.Tensor) -> torch.Tensor:
        """[slots, k, most x m, x] -> [n, k, m, x]: undo ``together``."""
        _, shared, _, size = values.shape
        by_row = values.view(self.slots, shared, self.most, -1, size).transpose(1, 2)
        return by_row.reshape(self.slots * self.most, shared, -1, size).index_select(0, self.places)


class _Heads(NamedTuple):
    """The heads of one layer and step: queries [n, k, h/k, d], scaled; keys and values [n, k, d]."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Layer:
    """Attention and MLP, each added to its input. ``kind``: the layer's name in ``config.layer_types``, which selects its mask."""

    kind: str
    before_attention: _Norm
    before_mlp: _Norm
    into_heads: _Product
    of_queries: _Norm | None
    of_keys: _Norm | None
    out_of_heads: _Product
    into_mlp: _Product
    out_of_mlp: _Product
    heads: int
    shared: int
    """Heads of keys and values."""
    scaling: float

    @classmethod
    def of(cls, layer: Any, kind: str) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        size = int(attention.head_dim)
        return cls(
            kind=kind,
            before_attention=_Norm.of(layer.input_layernorm),
            before_mlp=_Norm.of(layer.post_attention_layernorm),
            into_heads=_Product.of(projections),
            of_queries=_Norm.of(attention.q_norm) if hasattr(attention, "q_norm") else None,
            of_keys=_Norm.of(attention.k_norm) if hasattr(attention, "k_norm") else None,
            out_of_heads=_Product.of([attention.o_proj]),
            into_mlp=_Product.of([mlp.gate_proj, mlp.up_proj]),
            out_of_mlp=_Product.of([mlp.down_proj]),
            heads=attention.q_proj.weight.shape[0] // size,
            shared=attention.k_proj.weight.shape[0] // size,
            scaling=float(attention.scaling),
        )

    def project(self, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> _Heads:
        """[n, H] -> queries, keys and values."""
        rows, heads, shared = len(hidden), self.heads, self.shared
        mixed = self.into_heads(self.before_attention(hidden)).view(rows, heads + 2 * shared, -1)
        turned = self._turn(mixed, rotation)
        queries = (turned[:, :heads] * self.scaling).view(rows, shared, heads // shared, -1)
        return _Heads(queries, turned[:, heads:], mixed[:, heads + shared :])

    def finish(self, attended: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """[n, k, h/k, d] and the input of the layer, [n, H] -> [n, H]."""
        hidden = self.out_of_heads.add(attended.view(len(hidden), -1), hidden)
        gate, up = self.into_mlp(self.before_mlp(hidden)).chunk(2, dim=1)
        return self.out_of_mlp.add(silu(gate).mul_(up), hidden)

    def _turn(self, mixed: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """[n, h + 2 k, d] -> [n, h + k, d]: queries and keys, normed if the model does that, rotated to their positions."""
        heads, both = self.heads, mixed[:, : self.heads + self.shared]
        if self.of_queries is not None and self.of_keys is not None:
            both = torch.cat((self.of_queries(both[:, :heads]), self.of_keys(both[:, heads:])), dim=1)
        cosine, sine = rotation
        return (both * cosine).addcmul_(both.roll(both.shape[2] // 2, dims=2), sine)


def _attend(
    queries: torch.Tensor,
    own: tuple[torch.Tensor, torch.Tensor],
    prompt: tuple[torch.Tensor, torch.Tensor],
    mask: torch.Tensor,
    sharing: Sharing,
) -> torch.Tensor:
    """Compute attention with one softmax over the prompt and the generated tokens.

    Queries [n, k, m, d]; keys and values of generated tokens [n, k, c, d] and of the prompts [slots, k, P, d]; mask [n, 1, 1, P + c] -> [n,
    k, m, d].
    """
    of_prompt = sharing.apart(torch.matmul(sharing.together(queries), prompt[0].transpose(2, 3)))
    scores = torch.cat((of_prompt, torch.matmul(queries, own[0].transpose(2, 3))), dim=3).add_(mask)
    weights = torch.softmax(scores, dim=3)
    attended = torch.matmul(weights[..., sharing.width :], own[1])
    return attended.add_(sharing.apart(torch.matmul(sharing.together(weights[..., : sharing.width]), prompt[1])))


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: torch.Tensor
    epsilon: float

    @classmethod
    def of(cls, norm: Any) -> _Norm:
        return cls(norm.weight, float(norm.variance_epsilon))

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        return rms_norm(values, (values.shape[-1],), self.weight, self.epsilon)


@dataclass(frozen=True, slots=True)
class _Product:
    """One or several linear layers with the same input, as one: ``weight`` [in, out] is a transposed view."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    @classmethod
    def of(cls, layers: Sequence[Any]) -> _Product:
        weight = _side_by_side([layer.weight for layer in layers])
        bias = None if layers[0].bias is None else _side_by_side([layer.bias for layer in layers])
        return cls(weight.t(), bias)

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        return torch.mm(values, self.weight) if self.bias is None else torch.addmm(self.bias, values, self.weight)

    def add(self, values: torch.Tensor, onto: torch.Tensor) -> torch.Tensor:
        """Return ``onto`` plus the product."""
        added = torch.addmm(onto, values, self.weight)
        return added if self.bias is None else added.add_(self.bias)


def _side_by_side(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Put the parameters into one tensor along their first axis and make them views of it; a single parameter keeps its memory."""
    if len(parameters) == 1:
        return parameters[0].detach()
    whole = torch.cat([parameter.detach() for parameter in parameters])
    for parameter, view in zip(parameters, whole.split([len(parameter) for parameter in parameters]), strict=True):
        parameter.data = view
    return whole
