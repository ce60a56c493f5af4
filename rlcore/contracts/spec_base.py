"""What the specs of all kinds share: the kinds, and the base class of specs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal, get_args

from rlcore.contracts.capabilities import REPRODUCIBLE, check_types
from rlcore.contracts.public_members import EnumMembers, PublicMembers

__all__ = ["Gold", "Per", "PluginKind", "Reach", "Spec"]

Reach = Literal["process", "host", "cluster"]
"""How far apart two processes can be."""

Per = Literal["rollout", "token"]
"""The unit of an advantage."""

Gold = Literal["", "answer", "text"]
"""What the column ``gt_answer`` is to a reward."""


class PluginKind(StrEnum, metaclass=EnumMembers):
    """The kinds of things that a plugin can offer. The value is the word that users type (``rlcore show reward boxed``)."""

    REWARD = "reward"
    INFERENCE = "inference"
    TRAINING = "training"
    ESTIMATOR = "estimator"
    LOSS = "loss"
    AGGREGATION = "aggregation"
    KL = "kl"
    CORRECTION = "correction"
    ALGORITHM = "algo"
    TRACKER = "tracker"
    RUNTIME = "runtime"
    TRANSFER = "transfer"
    SANDBOX = "sandbox"
    COMMAND = "command"
    DATA = "data"
    CONVERSATION = "conversation"
    ENVIRONMENT = "environment"
    FORMAT = "format"
    LR_SCHEDULE = "lr_schedule"
    CONTROLLER = "controller"
    FILTER = "filter"
    MODEL_HOOK = "model_hook"
    OPTIMIZER = "optimizer"
    SAMPLER = "sampler"


_CHOICES: Mapping[str, tuple[str, ...]] = {"Reach": get_args(Reach), "Per": get_args(Per), "Gold": get_args(Gold), **REPRODUCIBLE}
"""Annotation of a field -> the words that it accepts."""

_NAME = re.compile(r"[a-z][a-z0-9_+.-]*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(metaclass=PublicMembers):
    """The fields that all kinds share.

    ``name``: in lower case; users may type it in any case.
    ``target``: ``"package.module:attribute"``, imported on first use.
    ``config``: the same for a pydantic model of its options, "" for none.
    ``summary``: one line.
    ``source``: paper and equation.
    """

    on_class: ClassVar[tuple[str, ...]] = ()
    """Fields that are attributes of the class, too. They are in the spec so that a run is checked without importing the class, and the
    class takes them from there: ``class Mine(Loss, spec=SPEC)``."""

    has_target: ClassVar[bool] = True
    """Whether the kind has code."""

    name: str
    target: str
    summary: str
    config: str = ""
    source: str = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_types(self, f"{type(self).__name__} {self.name!r}", _CHOICES)
        for name in (self.name, *self.aliases):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{type(self).__name__} name {name!r}: use lower-case letters, digits and _ + . -")
            if name in ("auto", "none"):
                meaning = "what the recipe or the core chooses" if name == "auto" else "nothing of the kind"
                raise ValueError(f"{type(self).__name__} name {name!r} is taken: it means {meaning}")
        if len(self.summary.splitlines()) > 1:
            raise ValueError(f"{type(self).__name__} {self.name!r}: summary has a line break, it must be one line")
        for label in ("target", "config", "audit", "tokenizer"):
            value = getattr(self, label, "")
            needed = label == "target" and self.has_target
            if (value or needed) and not _TARGET.fullmatch(value):
                raise ValueError(f"{type(self).__name__} {self.name!r}: {label} {value!r} must read 'package.module:attribute'")
