"""What a plugin declares: a name, where the implementation lives, its options, its documentation. Nothing heavy is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "AdvantageSpec",
    "AlgorithmSpec",
    "InferenceBackendSpec",
    "LossSpec",
    "PluginKind",
    "RewardSpec",
    "Spec",
    "TrackerSpec",
    "TrainingBackendSpec",
]


class PluginKind(StrEnum):
    """The kinds of thing that a plugin can offer; the value is the word that users type (``rlcore show reward boxed``)."""

    REWARD = "reward"
    INFERENCE = "inference"
    TRAINING = "training"
    ESTIMATOR = "estimator"
    LOSS = "loss"
    ALGORITHM = "algo"
    TRACKER = "tracker"


_NAME = re.compile(r"[a-z][a-z0-9_+.-]*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Common to all kinds. ``name``: lower case (users may type any case); ``target``: ``"package.module:attribute"``, imported on first
    use; ``config``: the same for a pydantic model of its options, "" for none; ``summary``: one line; ``source``: paper and equation.
    """

    name: str
    target: str
    summary: str
    config: str = ""
    source: str = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{type(self).__name__} name {name!r}: use lower-case letters, digits and _ + . -")
            if name == "auto":
                raise ValueError(f"{type(self).__name__} name 'auto' is taken: it means what the recipe or the core chooses")
        for label, value in (("target", self.target), ("config", self.config)):
            if value and not _TARGET.fullmatch(value):
                raise ValueError(f"{type(self).__name__} {self.name!r}: {label} {value!r} must read 'package.module:attribute'")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec(Spec):
    """A reward. ``requires``: columns a row must have; ``gives_accuracy``: its scores carry ``accuracy`` (a group filter needs that);
    ``system_prompt`` and ``stop``: defaults where the user sets none; ``full_value_option``: the option that holds the value of a right
    answer, by which the punishment of overlong responses is scaled ("": a right answer is worth 1). ``deadline``: seconds that it has for
    one response where the user sets none. ``audit``: ``"package.module:function"`` returning the ``AuditCase`` list that ``rlcore audit``
    runs it on; imported by that command only."""

    requires: tuple[str, ...] = ()
    gives_accuracy: bool = True
    system_prompt: str = ""
    stop: tuple[str, ...] = ()
    full_value_option: str = ""
    deadline: float = 10.0
    audit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceBackendSpec(Spec):
    """An inference backend. ``requires_module``: the engine that must be importable (the distribution installs without it);
    ``tokenizer``: ``"module:function"`` called with the model's path where the engine does not use a Hugging Face tokenizer."""

    requires_module: str = ""
    install: str = ""
    tokenizer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBackendSpec(Spec):
    """A training backend; ``requires_module`` and ``install`` as for inference."""

    requires_module: str = ""
    install: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageSpec(Spec):
    """An advantage estimator. ``accepts_kl`` and ``needs_greedy`` as on the class; here too, so that a run is checked without import.
    ``group_baseline``: its baseline is made of a prompt's other completions, so a group of one has no advantage."""

    accepts_kl: bool = False
    needs_greedy: bool = False
    group_baseline: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpec(Spec):
    """A policy-gradient loss. ``on_policy``: it has no ratio to the policy that sampled, so it is right for one optimizer step on fresh
    data only. ``sequence_ratio``: it has one ratio a response, which a weight for stale data must then be too."""

    on_policy: bool = False
    sequence_ratio: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec(Spec):
    """A recipe: an estimator and a loss by registered name, and defaults for settings of the core, each with where it comes from.

    ``defaults`` maps a setting's path to ``(value, source)``: ``{"algorithm.kl_coeff": (0.01, "GRPO, section 4.1")}``. ``notes`` is the
    formula and the differences from other conventions, in plain text. A recipe has no code: ``target`` stays "".
    """

    target: str = ""
    estimator: str
    loss: str
    defaults: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    notes: str = ""

    def __post_init__(self) -> None:
        Spec.__post_init__(self)  # super() without arguments does not work in a class with slots
        for path, default in self.defaults.items():
            if "." not in path or path in ("algorithm.name", "algorithm.estimator", "algorithm.loss"):
                raise ValueError(f"AlgorithmSpec {self.name!r}: defaults are for settings such as 'algorithm.kl_coeff', not for {path!r}")
            if not (isinstance(default, tuple) and len(default) == 2 and isinstance(default[1], str)):
                raise ValueError(f"AlgorithmSpec {self.name!r}: the default of {path!r} must be a pair (value, where it comes from)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSpec(Spec):
    """A tracker of metrics."""


SPEC_OF_KIND: Mapping[PluginKind, type[Spec]] = {
    PluginKind.REWARD: RewardSpec,
    PluginKind.INFERENCE: InferenceBackendSpec,
    PluginKind.TRAINING: TrainingBackendSpec,
    PluginKind.ESTIMATOR: AdvantageSpec,
    PluginKind.LOSS: LossSpec,
    PluginKind.ALGORITHM: AlgorithmSpec,
    PluginKind.TRACKER: TrackerSpec,
}
