"""What a backend declares that it can do, in one record, and the check of such records when one is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import NoneType
from typing import Any, Literal, get_args

from rlcore.contracts.public_members import EnumMembers, PublicMembers

__all__ = ["REPRODUCIBLE", "InFlight", "InferenceCapabilities", "Reproducible", "TrainingCapabilities", "check_types"]

Reproducible = Literal["bitwise", "seeded"]
"""The agreement between two runs of one configuration on the CPU.

``bitwise``: every number agrees, to the last bit. ``seeded``: the seeds agree; numbers may differ by rounding. On other devices no backend
promises more than ``seeded``.
"""

REPRODUCIBLE: Mapping[str, tuple[str, ...]] = {"Reproducible": get_args(Reproducible)}
"""The words of that annotation, for ``check_types``."""


class InFlight(StrEnum, metaclass=EnumMembers):
    """The treatment of a backend's unfinished requests when its weights change."""

    FINISH = "finish"
    RESUME = "resume"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCapabilities(metaclass=PublicMembers):
    """The capabilities of an inference backend. Its spec and its class declare the same record; a plan is checked against the spec's.

    ``in_flight``: the treatment of unfinished requests during an update.
    ``sleeps``: releases its device on request.
    ``sleeps_on``: those of ``devices`` that it releases; empty: all.
    ``scores``: answers the probe.
    ``counter_noise``: draws are a function of ``Request.noise``, which bitwise reproducibility needs.
    ``continues``: understands ``Request.continued``, so that the tokens of an aborted request are kept.
    ``layouts``: of {"single", "tensor"}.
    ``transfers``: how it receives weights: ``host`` for buckets in host memory, or names of engine transfers.
    ``kinds``: the values of ``WeightsKind`` that it accepts.
    ``sampling``: sampling parameters that it understands beyond the base: "min_p", and names in ``Sampling.extra``.
    ``details``: of {"kept", "experts"}, the ``TokenDetails`` that it reports.
    ``reproducible``: see ``Reproducible``.
    ``implementation``: the name of its forward pass, "" if unnamed. A trainer that declares the same name has the same log probabilities in
        float32, up to rounding.
    """

    in_flight: InFlight
    sleeps: bool = False
    sleeps_on: frozenset[str] = frozenset()
    scores: bool = True
    counter_noise: bool = False
    continues: bool = False
    layouts: frozenset[str] = frozenset({"single"})
    dtypes: frozenset[str] = frozenset({"float32"})
    devices: frozenset[str] = frozenset({"cpu"})
    transfers: frozenset[str] = frozenset({"host"})
    kinds: frozenset[str] = frozenset({"full"})
    sampling: frozenset[str] = frozenset()
    details: frozenset[str] = frozenset()
    reproducible: Reproducible = "seeded"
    implementation: str = ""

    def __post_init__(self) -> None:
        check_types(self, type(self).__name__, REPRODUCIBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCapabilities(metaclass=PublicMembers):
    """The capabilities of a training backend, declared by its spec and its class as for inference.

    ``layouts``: of {"single", "data", "tensor", "pipeline", "context", "expert", "zero"}.
    ``sleeps``: releases its device on request.
    ``kinds``: the values of ``WeightsKind`` that it publishes.
    ``lora``: trains adapters (``TrainingContext.lora``).
    ``model_hooks``: applies ``TrainingContext.model_hook``.
    ``optimizers``: steps with any ``OptimizerSettings.optimizer``, and not with AdamW alone.
    ``syncs_reference``: has ``sync_reference``.
    ``exports``: the dtypes to which ``save_model`` can round.
    ``entropies``: computes entropies before an update (``logprobs_and_entropies``).
    ``reproducible``: see ``Reproducible``.
    ``implementation``: see ``InferenceCapabilities``.
    """

    sleeps: bool = False
    layouts: frozenset[str] = frozenset({"single"})
    dtypes: frozenset[str] = frozenset({"float32"})
    devices: frozenset[str] = frozenset({"cpu"})
    kinds: frozenset[str] = frozenset({"full"})
    lora: bool = False
    model_hooks: bool = False
    optimizers: bool = False
    syncs_reference: bool = False
    exports: frozenset[str] = frozenset()
    entropies: bool = False
    reproducible: Reproducible = "seeded"
    implementation: str = ""

    def __post_init__(self) -> None:
        check_types(self, type(self).__name__, REPRODUCIBLE)


_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a string"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "True or False"),
    "bool | None": ((bool, NoneType), "True or False"),
    "InFlight": ((InFlight,), "an InFlight"),
    "InferenceCapabilities | None": ((InferenceCapabilities, NoneType), "an InferenceCapabilities"),
    "TrainingCapabilities | None": ((TrainingCapabilities, NoneType), "a TrainingCapabilities"),
}
"""Annotation of a field -> the types of its values, and their description."""


def check_types(record: Any, owner: str, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ValueError for a value of another type than its field. A text in place of a tuple of texts would be read letter by letter.

    ``choices``: annotation of a field -> the words that it accepts.
    """
    for known in fields(record):
        value, label = getattr(record, known.name), f"{owner}: {known.name}"
        texts = isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(one, str) for one in value)
        if str(known.type).startswith("tuple[str") and not texts:
            raise ValueError(f"{label} is {value!r}, it must be a tuple of strings such as ({str(value)!r},)")
        if str(known.type) == "frozenset[str]" and not (texts and isinstance(value, frozenset)):
            raise ValueError(
                f"{label} is {value!r}, it must be a frozenset of strings such as frozenset({sorted(value) if texts else [value]})"
            )
        types, wanted = _TYPES.get(str(known.type), ((), ""))
        if wanted and not (isinstance(value, types) and (bool in types or not isinstance(value, bool))):
            raise ValueError(f"{label} is {value!r}, it must be {wanted}")
        allowed = choices.get(str(known.type))
        if allowed and value not in allowed:
            raise ValueError(f"{label} is {value!r}, it must be one of {', '.join(allowed)}")
