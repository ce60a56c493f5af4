"""LoRA adapters in a model that is loaded: PEFT's layers around its linear layers, everything else frozen.

``attach`` changes the model in place before its parameters are sharded or given to an optimizer. The adapters' matrices are read from the
layers each time, since a wrapper of the model may replace its parameters. Nothing here knows of ranks, files of checkpoints or engines.

Source: Hu et al., "LoRA" (arXiv 2106.09685), section 4.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from transformers import PreTrainedModel

from rlcore.api import ConfigError, LoraSettings, RunError

__all__ = ["Adapters", "Pair", "attach"]

_NAME = "default"
_PREFIX = "base_model.model."
"""PEFT's files name the model by the place that it has inside PEFT's own wrapper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two matrices over one weight [rows, columns]: ``low`` A [rank, columns], ``high`` B [rows, rank]."""

    low: torch.Tensor
    high: torch.Tensor
    scale: float

    def merged(self, weight: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """``W + scale * B A`` in the precision of ``weight``: a new tensor. All three whole, if the pair itself is divided."""
        return torch.addmm(weight, high, low, alpha=self.scale)


def attach(model: PreTrainedModel, settings: LoraSettings, base: str, files: Mapping[str, str] = MappingProxyType({})) -> Adapters:
    """Put adapters into the model, draw A and set B to zero, freeze all else. ``base``: where the model was read, ``files``: the
    ``fingerprint`` of that.

    ConfigError, with what exists, for a target that no linear layer's name ends with, and for a rank that none of them can have."""
    targets = _targets(model, settings.targets)
    _check_rank(model, targets, settings.rank)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # PEFT divides it by the rank, so that a fraction serves as well
        target_modules=targets,
        exclude_modules=_outside(model),
        task_type="CAUSAL_LM",
        bias="none",
    )
    inject_adapter_in_model(config, model, adapter_name=_NAME)  # which freezes all else
    return Adapters(model, settings, targets, base, files)


class Adapters:
    """The adapters of one model. Their names are PEFT's, those of the weights below them the model's own."""

    def __init__(self, model: PreTrainedModel, settings: LoraSettings, targets: list[str], base: str, files: Mapping[str, str]) -> None:
        self.settings = settings
        self.base = base
        self._base_files = dict(files)
        self._targets = targets
        self._layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}

    def pairs(self) -> dict[str, Pair]:
        """Name of a weight in the plain model -> the matrices over it."""
        return {f"{name}.weight": _pair(layer) for name, layer in self._layers.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """PEFT's name -> matrix."""
        found: dict[str, torch.Tensor] = {}
        for name, layer in self._layers.items():
            pair = _pair(layer)
            found |= {f"{_PREFIX}{name}.lora_A.weight": pair.low, f"{_PREFIX}{name}.lora_B.weight": pair.high}
        return found

    @contextmanager
    def off(self) -> Iterator[None]:
        """The model computes as if it had no adapters, bit for bit."""
        # PEFT's enable_adapters(False) would also set requires_grad, which a sharded parameter reads when it is gathered first.
        try:
            for layer in self._layers.values():
                layer._disable_adapters = True
            yield
        finally:
            for layer in self._layers.values():
                layer._disable_adapters = False

    def config_text(self) -> str:
        """The text of PEFT's ``adapter_config.json``."""
        fields = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": self.base,
            "r": self.settings.rank,
            "lora_alpha": self.settings.alpha,
            "lora_dropout": 0.0,
            "target_modules": self._targets,
            "bias": "none",
            "inference_mode": True,
        }
        return json.dumps(fields, indent=2, sort_keys=True) + "\n"

    def shapes(self) -> dict[str, list[int]]:
        """Of the matrices, by PEFT's names."""
        return {name: list(matrix.shape) for name, matrix in self.tensors().items()}

    def saved(self) -> dict[str, Any]:
        """What ``check_saved`` needs, in types that torch loads without running code."""
        return {"shapes": self.shapes(), "alpha": self.settings.alpha, "base_files": self._base_files}

    def check_saved(self, state: Mapping[str, Any]) -> None:
        """RunError if this ``saved`` is of adapters on other layers, of another rank (it names a matrix), or scaled otherwise."""
        if state["alpha"] != self.settings.alpha:
            raise RunError(
                f"the checkpoint's adapters have lora_alpha {state['alpha']:g}, and this run {self.settings.alpha:g}: they would "
                f"count for more, or less; type --lora-alpha {state['alpha']:g}"
            )
        own, saved = self.shapes(), state["shapes"]
        for name in sorted(own.keys() | saved.keys()):
            here, there = own.get(name, "none (it is absent)"), saved.get(name, "none (it is absent)")
            if here != there:
                raise RunError(
                    f"the checkpoint's adapters are not those of this run: {name!r} has shape {there} there, and {here} here; "
                    "type the --lora-rank and --lora-targets that it was begun with"
                )

    def check_base(self, state: Mapping[str, Any]) -> None:
        """RunError if the weights below these adapters were read from files that are not those of this ``saved``."""
        own, saved = self._base_files, state["base_files"]
        for name in sorted(own.keys() | saved.keys()):
            if own.get(name) != saved.get(name):
                raise RunError(
                    f"the model {self.base!r} below the adapters of this checkpoint is not what they were trained on: its {name} is "
                    "another than when their run began; put the original back, or start a new run from the checkpoint's merged model"
                )


def _pair(layer: LoraLayer) -> Pair:
    return Pair(low=layer.lora_A[_NAME].weight, high=layer.lora_B[_NAME].weight, scale=float(layer.scaling[_NAME]))


def _outside(model: PreTrainedModel) -> list[str]:
    """Names of the output head and the embedding: log probabilities are computed from the weight of the one, and the two may be tied."""
    never = {id(model.get_output_embeddings()), id(model.get_input_embeddings())}
    return [name for name, module in model.named_modules() if id(module) in never]


def _linear(model: PreTrainedModel) -> dict[str, torch.nn.Linear]:
    """The layers that adapters could be put on, by name."""
    outside = _outside(model)
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear) and name not in outside}


def _ends_with(name: str, target: str) -> bool:
    return f".{name}".endswith(f".{target}")


def _check_rank(model: PreTrainedModel, targets: Sequence[str], rank: int) -> None:
    """ConfigError if every layer with adapters has a side shorter than ``rank``: B A is never of a higher rank than that."""
    sides = {
        name: min(layer.in_features, layer.out_features)
        for name, layer in _linear(model).items()
        if any(_ends_with(name, target) for target in targets)
    }
    widest = max(sides, key=lambda name: sides[name])
    if rank > (most := sides[widest]):
        raise ConfigError(
            f"training.lora_rank {rank}: of {_named(model)} no layer with adapters has weights whose change can be of a rank above {most} "
            f"(that of {widest!r}); type --lora-rank {most} or less"
        )


def _named(model: PreTrainedModel) -> str:
    return f"model {model.config.name_or_path!r} ({type(model).__name__})"


def _targets(model: PreTrainedModel, asked: tuple[str, ...]) -> list[str]:
    """Ends of names of the linear layers that get adapters, each of which some layer has."""
    outside, linear = _outside(model), _linear(model)
    ends = sorted({name.rpartition(".")[2] for name in linear})
    what = _named(model)
    if not ends:
        raise ConfigError(
            f"training.lora_rank: {what} has no linear layers (torch.nn.Linear) that adapters could be put on; type --lora-rank 0"
        )
    for target in asked:
        if not any(_ends_with(name, target) for name in linear):
            why = "is the output head or the embedding, which get none" if target in outside else "is no linear layer"
            raise ConfigError(f"training.lora_targets {target!r}: in {what} this {why}; its linear layers end with {', '.join(ends)}")
    return sorted(set(asked)) or ends
