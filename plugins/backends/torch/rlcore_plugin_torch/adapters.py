"""LoRA adapters in a loaded model: PEFT's layers around its linear layers; all other weights are frozen.

``attach`` changes the model in place before its parameters are sharded or given to an optimizer. The adapters' matrices are read from the
layers each time, since a wrapper of the model may replace its parameters. This module does not handle ranks, checkpoint files or engines.

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
"""PEFT's files name a weight by the place that it has inside PEFT's own wrapper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two matrices over one weight [rows, columns]: ``low`` A [rank, columns], ``high`` B [rows, rank]."""

    low: torch.Tensor
    high: torch.Tensor
    scale: float

    def merged(self, weight: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """Return ``W + scale * B A`` in the precision of ``weight``, as a new tensor. If the pair is divided, all three arguments must
        be whole."""
        return torch.addmm(weight, high, low, alpha=self.scale)


def attach(model: PreTrainedModel, settings: LoraSettings, base: str, files: Mapping[str, str] = MappingProxyType({})) -> Adapters:
    """Add adapters to the model, draw A, set B to zero and freeze all other weights.

    ``base``: the path that the model was read from; ``files``: the ``fingerprint`` of that path. Raises ConfigError for a target that no
    linear layer's name ends with; the error lists the existing names. Raises ConfigError also for a rank that none of these layers can
    have.
    """
    targets = _targets(model, settings.targets)
    _check_rank(model, targets, settings.rank)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # PEFT divides it by the rank, so a fraction works too
        target_modules=targets,
        exclude_modules=_outside(model),
        task_type="CAUSAL_LM",
        bias="none",
    )
    inject_adapter_in_model(config, model, adapter_name=_NAME)  # this also freezes all other weights
    return Adapters(model, settings, targets, base, files)


class Adapters:
    """The adapters of one model. Adapters have PEFT's names; the weights below them keep the model's own names."""

    def __init__(self, model: PreTrainedModel, settings: LoraSettings, targets: list[str], base: str, files: Mapping[str, str]) -> None:
        self.settings = settings
        self.base = base
        self._base_files = dict(files)
        self._targets = targets
        self._layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}

    def pairs(self) -> dict[str, Pair]:
        """Return the matrices over each weight, by the weight's name in the plain model."""
        return {f"{name}.weight": _pair(layer) for name, layer in self._layers.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the matrices by PEFT's names."""
        found: dict[str, torch.Tensor] = {}
        for name, layer in self._layers.items():
            pair = _pair(layer)
            found |= {f"{_PREFIX}{name}.lora_A.weight": pair.low, f"{_PREFIX}{name}.lora_B.weight": pair.high}
        return found

    @contextmanager
    def off(self) -> Iterator[None]:
        """Let the model compute as if it had no adapters, bit for bit."""
        # PEFT's enable_adapters(False) would also set requires_grad, which a sharded parameter reads when it is first gathered.
        try:
            for layer in self._layers.values():
                layer._disable_adapters = True
            yield
        finally:
            for layer in self._layers.values():
                layer._disable_adapters = False

    def config_text(self) -> str:
        """Return the text of PEFT's ``adapter_config.json``."""
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
        """Return the shapes of the matrices, by PEFT's names."""
        return {name: list(matrix.shape) for name, matrix in self.tensors().items()}

    def saved(self) -> dict[str, Any]:
        """Return the state that ``check_saved`` and ``check_base`` need, in types that torch loads without running code."""
        return {"shapes": self.shapes(), "alpha": self.settings.alpha, "base_files": self._base_files}

    def check_saved(self, state: Mapping[str, Any]) -> None:
        """Raise RunError if the ``saved`` state has adapters on other layers, of another rank (the error names a matrix), or scaled
        differently."""
        if state["alpha"] != self.settings.alpha:
            raise RunError(
                f"the checkpoint's adapters have lora_alpha {state['alpha']:g}, and this run has {self.settings.alpha:g}: their "
                f"effect would be scaled differently; type --lora-alpha {state['alpha']:g}"
            )
        own, saved = self.shapes(), state["shapes"]
        for name in sorted(own.keys() | saved.keys()):
            here, there = own.get(name, "none (it is absent)"), saved.get(name, "none (it is absent)")
            if here != there:
                raise RunError(
                    f"the checkpoint's adapters are not those of this run: {name!r} has shape {there} there, and {here} here; "
                    "type the --lora-rank and --lora-targets of the checkpoint's run"
                )

    def check_base(self, state: Mapping[str, Any]) -> None:
        """Raise RunError if the weights below these adapters were read from other files than those of the ``saved`` state."""
        own, saved = self._base_files, state["base_files"]
        for name in sorted(own.keys() | saved.keys()):
            if own.get(name) != saved.get(name):
                raise RunError(
                    f"the model {self.base!r} below the adapters of this checkpoint is not the one that they were trained on: its {name} "
                    "has changed since their run began; put the original back, or start a new run from the checkpoint's merged model"
                )


def _pair(layer: LoraLayer) -> Pair:
    return Pair(low=layer.lora_A[_NAME].weight, high=layer.lora_B[_NAME].weight, scale=float(layer.scaling[_NAME]))


def _outside(model: PreTrainedModel) -> list[str]:
    """Return the names of the output head and the embedding.

    Log probabilities are computed from the head's weight directly, and the two may be tied.
    """
    never = {id(model.get_output_embeddings()), id(model.get_input_embeddings())}
    return [name for name, module in model.named_modules() if id(module) in never]


def _linear(model: PreTrainedModel) -> dict[str, torch.nn.Linear]:
    """Return the layers that can take adapters, by name."""
    outside = _outside(model)
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear) and name not in outside}


def _ends_with(name: str, target: str) -> bool:
    return f".{name}".endswith(f".{target}")


def _check_rank(model: PreTrainedModel, targets: Sequence[str], rank: int) -> None:
    """Raise ConfigError if every layer with adapters has a side shorter than ``rank``: the rank of B A never exceeds that side."""
    sides = {
        name: min(layer.in_features, layer.out_features)
        for name, layer in _linear(model).items()
        if any(_ends_with(name, target) for target in targets)
    }
    widest = max(sides, key=lambda name: sides[name])
    if rank > (most := sides[widest]):
        raise ConfigError(
            f"training.lora_rank {rank}: no layer with adapters in {_named(model)} has weights whose change can have a rank above {most} "
            f"(the limit of {widest!r}); type --lora-rank {most} or less"
        )


def _named(model: PreTrainedModel) -> str:
    return f"model {model.config.name_or_path!r} ({type(model).__name__})"


def _targets(model: PreTrainedModel, asked: tuple[str, ...]) -> list[str]:
    """Return the name endings of the linear layers that get adapters; each ending matches at least one layer."""
    outside, linear = _outside(model), _linear(model)
    ends = sorted({name.rpartition(".")[2] for name in linear})
    what = _named(model)
    if not ends:
        raise ConfigError(
            f"training.lora_rank: {what} has no linear layers (torch.nn.Linear) that adapters could be put on; type --lora-rank 0"
        )
    for target in asked:
        if not any(_ends_with(name, target) for name in linear):
            why = "is the output head or the embedding, which take no adapters" if target in outside else "is not a linear layer"
            raise ConfigError(f"training.lora_targets {target!r}: in {what} this {why}; its linear layers end with {', '.join(ends)}")
    return sorted(set(asked)) or ends
