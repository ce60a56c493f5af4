"""Specs of the parts of an algorithm: what computes an update, and the recipes that choose them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcore.contracts.spec_base import Per, Spec

__all__ = [
    "AdvantageSpec",
    "AggregationSpec",
    "AlgorithmSpec",
    "CorrectionSpec",
    "GroupFilterSpec",
    "KlSpec",
    "LearningRateScheduleSpec",
    "LossSpec",
    "OptimizerSpec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageSpec(Spec):
    """An advantage estimator.

    ``accepts_kl``: it accepts the KL penalty in the reward.
    ``needs_greedy``: the producer must sample one greedy completion per prompt (ReMax).
    ``per``: it returns one advantage per rollout or per token.
    ``group_baseline``: the baseline comes from the prompt's other completions, so a group of one has no advantage.
    """

    on_class = ("accepts_kl", "needs_greedy", "per")

    accepts_kl: bool = False
    needs_greedy: bool = False
    group_baseline: bool = True
    per: Per = "rollout"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpec(Spec):
    """A policy-gradient loss.

    ``on_policy``: the loss has no ratio to the policy that sampled, so it is correct only for one optimizer step on fresh data. None: not
        declared; ``max_staleness = "auto"`` is then 0 without a correction.
    ``sequence_ratio``: the loss has one ratio per response; a weight for stale data must then be per response too.
    ``one_advantage``: the loss takes one advantage per response, so KL in the reward is refused with an estimator that is ``per`` token.
    ``prepares_entropy``: ``prepare`` reads ``batch.entropy``, which only trainers with ``capabilities.entropies`` compute. Since 2.0.
    """

    on_class = ("on_policy", "sequence_ratio", "one_advantage", "prepares_entropy")

    on_policy: bool | None = None
    sequence_ratio: bool = False
    one_advantage: bool = False
    prepares_entropy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationSpec(Spec):
    """A reduction of losses per token to one number: the value of ``algorithm.loss_variation``, with a table ``…_options``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KlSpec(Spec):
    """An estimate of the KL divergence from the reference: the value of ``algorithm.kl_kind``, with a table ``…_options``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionSpec(Spec):
    """A weight for data that another policy sampled: the value of ``algorithm.mismatch_correction``.

    Its options are in ``[algorithm.mismatch_correction_options]``.

    ``per``: whether each token or each rollout has its own weight.
    ``usual_range``: the pair (low, high) for ``mismatch_range = "auto"``, with 1 inside it; () if the correction has no bounds.
    ``masks``: the correction drops data outside the bounds, so it needs bounds.
    """

    on_class = ("per", "usual_range", "masks")

    per: Per = "token"
    usual_range: tuple[float, ...] = ()
    masks: bool = False

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        bounds = self.usual_range
        if (bounds or self.masks) and not (len(bounds) == 2 and bounds[0] <= 1.0 <= bounds[1] and bounds[0] < bounds[1]):
            raise ValueError(f"CorrectionSpec {self.name!r}: usual_range is {bounds}, it must be (low, high) with 1 between them")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateScheduleSpec(Spec):
    """The course of the learning rate after the warm-up: the value of ``training.lr_schedule``, with a table ``…_options``. Since 2.0.

    ``constant``: the rate stays at the peak, so that a controller may set it.
    """

    constant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilterSpec(Spec):
    """A filter of groups: a value of ``algorithm.filters``. Its options are in ``[algorithm.filter_options.NAME]``, so its name contains no
    dot. Since 2.0."""

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        if "." in self.name:
            raise ValueError(
                f"GroupFilterSpec name {self.name!r}: leave the dot out, for the options stand in [algorithm.filter_options.NAME]"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpec(Spec):
    """A rule that moves the weights: the value of ``training.optimizer``, with a table ``…_options``. Since 2.0.

    ``elementwise``: each element moves by its own gradient, moments and step count alone, so a rank steps its part of a divided tensor.
        Otherwise each rank gathers whole tensors for the step, one at a time.
    """

    on_class = ("elementwise",)

    elementwise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec(Spec):
    """A recipe: an estimator and a loss by registered name, and defaults for core settings, each with its source.

    ``defaults`` maps the path of a setting to ``(value, source)``: ``{"algorithm.kl_coeff": (0.01, "GRPO, section 4.1")}``. ``notes`` has
    the formula and the differences from other conventions, in plain text. A recipe has no code: ``target`` stays "".
    """

    has_target = False

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
