"""Model hooks with one planted bug each."""

from __future__ import annotations

from typing import Any

from rlcore.contracts.model_hook import ModelHook


class DrawsAnew(ModelHook):
    """A generator of its own, which each rank and each resume seeds in another way."""

    drawn = 0

    def apply(self, model: Any) -> Any:
        DrawsAnew.drawn += 1
        model.lm_head.weight.data += 0.01 * DrawsAnew.drawn
        return model


class FreezesInTurn(ModelHook):
    applied = 0

    def apply(self, model: Any) -> Any:
        FreezesInTurn.applied += 1
        for number, weight in enumerate(model.parameters()):
            weight.requires_grad_(number % 2 == FreezesInTurn.applied % 2)
        return model


class FreezesAll(ModelHook):
    def apply(self, model: Any) -> Any:
        return model.requires_grad_(False)


class AddsALayer(ModelHook):
    def apply(self, model: Any) -> Any:
        model.extra = type(model.lm_head)(3, 3)
        return model


class AddsTokens(ModelHook):
    """The config says so too, so that it saves; the tokens of the run do not change."""

    def apply(self, model: Any) -> Any:
        model.resize_token_embeddings(70)
        return model


class Divides(ModelHook):
    """A weight of 0 that a norm divides by."""

    def apply(self, model: Any) -> Any:
        model.lm_head.weight.data /= 0.0
        return model


class ScalesLogits(ModelHook):
    """A forward that no file knows."""

    def apply(self, model: Any) -> Any:
        model.lm_head.register_forward_hook(lambda module, given, out: out * 2.0)
        return model


class FreezesWhatIsZero(ModelHook):
    """Sets weights to 0 and freezes those that are not, so that a saved model is frozen in another way."""

    def apply(self, model: Any) -> Any:
        for weight in model.parameters():
            weight.requires_grad_(bool(weight.any()))
        model.lm_head.weight.data.zero_()
        return model
