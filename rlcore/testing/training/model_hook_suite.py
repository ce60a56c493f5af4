"""Conformance suite for model hooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rlcore.contracts.model_hook import ModelHook

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["ModelHookSuite"]

_CLOSE = 1e-3
"""Nats between the log probabilities of a hooked model and those of the same model after ``from_pretrained``."""


class ModelHookSuite(ABC):
    """The rules of a model hook. A subclass defines how to make it, and the model that it is for if it does not suit a small Llama."""

    @abstractmethod
    def make(self) -> ModelHook:
        """Return a fresh hook."""

    def model(self) -> PreTrainedModel:
        """Return a small model of ``AutoModelForCausalLM``, the same at each call."""
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            return LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.2, tie_word_embeddings=False)).eval()

    def test_it_is_deterministic(self) -> None:
        """From equal random states, two fresh hooks make the same model of equal models: every rank and every resume has that model."""
        import torch

        first, second = self._hooked(), self._hooked()
        weights, others = first.state_dict(), second.state_dict()
        assert list(weights) == list(others), f"two calls give other names: {sorted(set(weights) ^ set(others))[:3]}"
        differ = [name for name in weights if not torch.equal(weights[name], others[name])]
        assert not differ, f"two calls give other values of {differ[0]!r} ({len(differ)} such tensors)"
        assert _trained(first) == _trained(second), f"two calls freeze other parameters: {sorted(_trained(first) ^ _trained(second))[:3]}"

    def test_something_trains(self) -> None:
        """At least one parameter is trained."""
        assert _trained(self._hooked()), "no parameter has requires_grad True"

    def test_names_and_shapes_are_those_of_the_config(self) -> None:
        """The weights have the names and shapes of the class that the model's ``config`` names: engines build that class."""
        import torch
        from transformers import AutoModelForCausalLM

        hooked = self._hooked()
        with torch.device("meta"):
            plain = AutoModelForCausalLM.from_config(hooked.config)
        here = {name: tuple(weight.shape) for name, weight in hooked.state_dict().items()}
        there = {name: tuple(weight.shape) for name, weight in plain.state_dict().items()}
        odd = [name for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)]
        assert not odd, f"{odd[0]!r} has the shape {here.get(odd[0])}, and {there.get(odd[0])} in {type(plain).__name__}"

    def test_it_answers_with_logits(self) -> None:
        """The model gives finite logits of the shape (sequences, tokens, vocabulary)."""
        import torch

        before, logits = _logits(self.model()), _logits(self._hooked())
        assert logits.shape == before.shape, f"logits have the shape {tuple(logits.shape)}, {tuple(before.shape)} are due"
        assert torch.isfinite(logits).all(), "some logits are not finite"

    def test_transformers_loads_what_is_saved(self) -> None:
        """``from_pretrained`` of the saved model has the same log probabilities."""
        hooked, saved = self._hooked(), self._saved_and_loaded()
        gap = float((_logits(hooked).log_softmax(-1) - _logits(saved).log_softmax(-1)).abs().max())
        assert gap <= _CLOSE, f"after save_pretrained and from_pretrained, log probabilities differ by {gap:.2g}"

    def test_a_resumed_run_trains_the_same_parameters(self) -> None:
        """Applied to the saved model, it freezes the same parameters: a resumed run begins from a checkpoint."""
        begun, resumed = _trained(self._hooked()), _trained(self._hooked(self._saved_and_loaded()))
        assert begun == resumed, f"of a saved model it freezes other parameters: {sorted(begun ^ resumed)[:3]}"

    def _hooked(self, model: PreTrainedModel | None = None) -> PreTrainedModel:
        import torch

        given = model or self.model()
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(1)
            return self.make().apply(given).eval()

    def _saved_and_loaded(self) -> PreTrainedModel:
        from transformers import AutoModelForCausalLM

        with TemporaryDirectory() as folder:
            self._hooked().save_pretrained(Path(folder))
            loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder)
            return loaded.eval()


def _trained(model: PreTrainedModel) -> set[str]:
    return {name for name, weight in model.named_parameters() if weight.requires_grad}


def _logits(model: PreTrainedModel) -> torch.Tensor:
    import torch

    tokens = torch.arange(2, 14)[None] % int(model.get_input_embeddings().weight.shape[0])
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=tokens, use_cache=False).logits
    return logits.float()
