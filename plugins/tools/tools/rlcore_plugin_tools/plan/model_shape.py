"""The sizes of a decoder, by name or from the config.json of a model folder, and the numbers of parameters that follow from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError, UsageError

__all__ = ["SIZES", "DecoderShape", "named_shape", "shape_of_folder"]

_KINDS: Mapping[str, tuple[bool, bool]] = {
    "llama": (False, False),
    "mistral": (False, False),
    "qwen2": (True, False),
    "qwen3": (False, True),
}
"""model_type -> (query, key and value have biases; queries and keys of each head are normalised)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """A dense decoder with grouped queries, a gated MLP and two norms a layer (Llama, Mistral, Qwen2, Qwen3)."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    biases: bool = False
    head_norms: bool = False

    @property
    def queries(self) -> int:
        """Width of all heads' queries."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of all heads' keys, or values."""
        return self.kv_heads * self.head_dim

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of the linear layers of one layer: q, k, v, o, gate, up, down."""
        h, i = self.hidden, self.intermediate
        return (h, self.queries), (h, self.keys), (h, self.keys), (self.queries, h), (h, i), (h, i), (i, h)

    @property
    def layer_matrices(self) -> int:
        """Parameters of one layer that tensor parallelism divides: its linear layers."""
        return sum(inputs * outputs for inputs, outputs in self.linears) + (self.queries + 2 * self.keys) * self.biases

    @property
    def layer_norms(self) -> int:
        """Parameters of one layer that every tensor-parallel rank holds."""
        return 2 * self.hidden + 2 * self.head_dim * self.head_norms

    @property
    def outside(self) -> int:
        """Parameters outside the layers: embeddings, output embeddings unless tied, the last norm."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self) -> int:
        """The number of all parameters."""
        return self.layers * (self.layer_matrices + self.layer_norms) + self.outside


def _qwen2(name: str, hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool) -> DecoderShape:
    return DecoderShape(
        name=f"Qwen2.5-{name}",
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        vocabulary=vocabulary,
        tied=tied,
        biases=True,
    )


def _qwen3(name: str, hidden: int, intermediate: int, layers: int, heads: int, tied: bool) -> DecoderShape:
    return DecoderShape(
        name=f"Qwen3-{name}",
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        vocabulary=151_936,
        tied=tied,
        head_norms=True,
    )


SIZES: Mapping[str, DecoderShape] = {
    "0.5b": _qwen2("0.5B", 896, 4864, 24, 14, 2, 151_936, True),
    "1.5b": _qwen2("1.5B", 1536, 8960, 28, 12, 2, 151_936, True),
    "3b": _qwen2("3B", 2048, 11_008, 36, 16, 2, 151_936, True),
    "7b": _qwen2("7B", 3584, 18_944, 28, 28, 4, 152_064, False),
    "14b": _qwen2("14B", 5120, 13_824, 48, 40, 8, 152_064, False),
    "32b": _qwen2("32B", 5120, 27_648, 64, 40, 8, 152_064, False),
    "72b": _qwen2("72B", 8192, 29_568, 80, 64, 8, 152_064, False),
    "0.6b": _qwen3("0.6B", 1024, 3072, 28, 16, True),
    "1.7b": _qwen3("1.7B", 2048, 6144, 28, 16, True),
    "4b": _qwen3("4B", 2560, 9728, 36, 32, True),
    "8b": _qwen3("8B", 4096, 12_288, 36, 32, False),
}
"""Shapes by size, from the config.json that each model is published with."""


def named_shape(size: str) -> DecoderShape:
    """Return the shape of a size such as ``7B`` or ``7b``. Raises UsageError."""
    if size.lower() not in SIZES:
        raise UsageError(f"--model-size {size}: must be one of {', '.join(SIZES)}; for another model, type its folder instead")
    return SIZES[size.lower()]


def shape_of_folder(folder: Path) -> DecoderShape:
    """Return the shape in ``config.json``. Raises ConfigError if the file is missing, is of another kind of model, or lacks a size."""
    path = folder if folder.name == "config.json" else folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON ({error}); type the folder of a model, or --model-size 7b") from error
    kind = str(config.get("model_type")) if isinstance(config, dict) else "none"
    if kind not in _KINDS:
        raise ConfigError(
            f"{path}: rlcore plan memory counts models of type {', '.join(_KINDS)}, but model_type is {kind!r}; "
            "type --model-size with a model of about the same size"
        )
    biases, head_norms = _KINDS[kind]
    hidden, heads = _size(path, config, "hidden_size"), _size(path, config, "num_attention_heads")
    return DecoderShape(
        name=str(folder),
        hidden=hidden,
        intermediate=_size(path, config, "intermediate_size"),
        layers=_size(path, config, "num_hidden_layers"),
        heads=heads,
        kv_heads=_size(path, config, "num_key_value_heads", heads),
        head_dim=_size(path, config, "head_dim", hidden // heads),
        vocabulary=_size(path, config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", False)),
        biases=biases,
        head_norms=head_norms,
    )


def _size(path: Path, config: dict[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{path}: {name} is {value!r}; it must be a whole number of at least 1")
    return value
