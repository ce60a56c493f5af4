"""What a backend declares that it can do, in one record, and the check of such records when one is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import NoneType
from typing import Any, Literal, get_args

__all__ = ["REPRODUCIBLE", "InFlight", "InferenceCapabilities", "Reproducible", "TrainingCapabilities", "check_types"]

Reproducible = Literal["bitwise", "seeded"]
"""What two runs of one configuration have in common on the CPU: ``bitwise``: every number, to the last bit; ``seeded``: the seeds, while
numbers may differ by rounding. On other devices no backend promises more than ``seeded``."""

REPRODUCIBLE: Mapping[str, tuple[str, ...]] = {"Reproducible": get_args(Reproducible)}
"""The words of that annotation, for ``check_types``."""


class InFlight(StrEnum):
    """What a backend does with unfinished requests when its weights change."""

    FINISH = "finish"
    RESUME = "resume"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCapabilities:
    """What an inference backend can do. Its spec and its class declare the same record: a plan is checked against the spec's.

    ``in_flight`` on update; ``sleeps``: gives its device back on request; ``sleeps_on``: of ``devices``, those that it gives back (none
    named: all); ``scores``: answers the probe; ``counter_noise``: draws are a function of ``Request.noise``, which bitwise reproducibility
    needs; ``continues``: understands ``Request.continued``, so that what an abort left is kept; ``layouts`` of {"single", "tensor"};
    ``transfers``: ways by which it takes weights: ``host``, buckets in host memory; or the names of engine transfers; ``kinds`` of
    ``WeightsKind`` that it takes; ``sampling``: what of a request it understands beyond the base: "min_p", and names in
    ``Sampling.extra``; ``details`` of {"kept", "experts"}: what ``TokenDetails`` it tells; ``reproducible``: see ``Reproducible``;
    ``implementation``: whose forward pass it is: a trainer that declares the same one has the same log probabilities in float32, up to
    rounding; "": nobody's.
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
class TrainingCapabilities:
    """What a training backend can do, declared by its spec and its class as for inference. ``layouts`` of {"single", "data", "tensor",
    "pipeline", "context", "expert", "zero"}; ``sleeps``: gives its device back on request; ``kinds`` of ``WeightsKind`` that it hands out;
    ``lora``: trains adapters (``TrainingContext.lora``); ``exports``: dtypes that ``save_model`` rounds to; ``reproducible``: see
    ``Reproducible``."""

    sleeps: bool = False
    layouts: frozenset[str] = frozenset({"single"})
    dtypes: frozenset[str] = frozenset({"float32"})
    devices: frozenset[str] = frozenset({"cpu"})
    kinds: frozenset[str] = frozenset({"full"})
    lora: bool = False
    exports: frozenset[str] = frozenset()
    reproducible: Reproducible = "seeded"
    implementation: str = ""

    def __post_init__(self) -> None:
        check_types(self, type(self).__name__, REPRODUCIBLE)


_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "True or False"),
    "bool | None": ((bool, NoneType), "True or False"),
    "InFlight": ((InFlight,), "an InFlight"),
    "InferenceCapabilities | None": ((InferenceCapabilities, NoneType), "an InferenceCapabilities"),
    "TrainingCapabilities | None": ((TrainingCapabilities, NoneType), "a TrainingCapabilities"),
}
"""Types of fields as they are annotated, what their values are, and that in words."""


def check_types(record: Any, owner: str, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse values of another type than the field's; a text for a tuple of texts would be read letter by letter.

    ``choices``: by its annotation, the words that a field may have.
    """
    for known in fields(record):
        value, label = getattr(record, known.name), f"{owner}: {known.name}"
        texts = isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(one, str) for one in value)
        if str(known.type).startswith("tuple[str") and not texts:
            raise ValueError(f"{label} is {value!r}, it must be a tuple of texts such as ({str(value)!r},)")
        if str(known.type) == "frozenset[str]" and not (texts and isinstance(value, frozenset)):
            raise ValueError(
                f"{label} is {value!r}, it must be a frozenset of texts such as frozenset({sorted(value) if texts else [value]})"
            )
        types, wanted = _TYPES.get(str(known.type), ((), ""))
        if wanted and not (isinstance(value, types) and (bool in types or not isinstance(value, bool))):
            raise ValueError(f"{label} is {value!r}, it must be {wanted}")
        allowed = choices.get(str(known.type))
        if allowed and value not in allowed:
            raise ValueError(f"{label} is {value!r}, it must be one of {', '.join(allowed)}")
