"""A change of the model before it is trained: the base class of such a change, and its spec. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlcore.contracts.spec_base import Spec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ModelHook", "ModelHookSpec"]


class ModelHook(ABC):
    """A change of the model between loading and training: frozen parts, other first weights, another class or another forward. Since 2.0.

    The trainer calls ``apply`` on the whole model, before adapters are added and before the model is divided between ranks. The reference
    model is changed in the same way; one that ``model.reference`` names keeps its weights. Each call has the same state of torch's random
    generators, so all ranks and every resume get the same model. In a resumed run the weights of the checkpoint replace those that
    ``apply`` set.
    """

    @abstractmethod
    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the model to train: the given one, changed in place, or another one.

        Parameters with ``requires_grad`` False are not trained; they are published and saved. The engines and ``from_pretrained`` build
        the model from its ``config``, so names and shapes of the weights, and the log probabilities, must be those of the class that
        the ``config`` names. The trainer refuses any other model before the first update.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHookSpec(Spec):
    """A change of the model before it is trained: the value of ``training.model_hook``, with a table ``…_options``. Since 2.0."""
