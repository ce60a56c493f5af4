"""From the configured names to the algorithm that a consumer runs."""

from __future__ import annotations

from math import inf
from typing import Any

from rlcore.config import Plan
from rlcore.contracts.around_loss import Correction, KlEstimator
from rlcore.contracts.errors import PluginError
from rlcore.contracts.interfaces import AdvantageEstimator, Loss, Need
from rlcore.contracts.specs import PluginKind, RewardSpec
from rlcore.learning.assemble import BatchSettings
from rlcore.learning.objective import PolicyObjective
from rlcore.learning.shaping import SoftOverlong
from rlcore.roles.consumer import Algorithm

__all__ = ["build_algorithm"]


def build_algorithm(plan: Plan) -> Algorithm:
    """Estimator, loss and objective as instances, and the settings of the core around them."""
    config, settings = plan.config, plan.config.algorithm
    loss: Loss = plan.registry.make(PluginKind.LOSS, settings.loss, options=plan.loss_options)
    estimator: AdvantageEstimator = plan.registry.make(PluginKind.ESTIMATOR, settings.estimator, options=plan.estimator_options)
    if not (isinstance(loss.needs, frozenset | set) and loss.needs <= set(Need)):
        raise PluginError(f"loss {settings.loss!r} needs {loss.needs!r}; needs must be a frozenset of {', '.join(Need)}")
    made = plan.algorithm_options
    kl: KlEstimator = plan.registry.make(PluginKind.KL, settings.kl_kind, options=made.get("kl_kind"))
    in_loss = settings.kl_in == "loss"
    return Algorithm(
        estimator_name=settings.estimator,
        estimator=estimator,
        loss_name=settings.loss,
        loss=loss,
        objective=PolicyObjective(
            loss=loss,
            name=settings.loss,
            kl_coeff=settings.kl_coeff if in_loss else 0.0,
            kl_kind=kl,
            entropy_coeff=settings.entropy_coeff,
            skip_threshold=settings.skip_threshold,
            correction=_correction(plan),
        ),
        batch=BatchSettings(
            max_new_tokens=config.sampling.max_new_tokens,
            variation=plan.registry.make(PluginKind.AGGREGATION, settings.loss_variation, options=made.get("loss_variation")),
            filter_truncated=settings.filter_truncated_response,
            overlong=_overlong(plan),
        ),
        seed=config.run.seed,
        updates_per_batch=min(settings.updates_per_batch, config.training.train_batch_size),
        epochs_per_batch=settings.epochs_per_batch,
        old_from_trainer=settings.old_logprobs == "trainer",
        kl_in_reward=0.0 if in_loss else settings.kl_coeff,
        kl_kind=kl,
    )


def _correction(plan: Plan) -> Correction | None:
    name, bounds = plan.config.algorithm.mismatch_correction, plan.config.algorithm.mismatch_range
    if name == "none":
        return None
    held, options = bounds if isinstance(bounds, tuple) else (0.0, inf), plan.algorithm_options.get("mismatch_correction")
    made: Correction = plan.registry.make(PluginKind.CORRECTION, name, held, options=options)
    return made


def _full_value(spec: RewardSpec, options: Any) -> float:
    return float(getattr(options, spec.full_value_option)) if spec.full_value_option else 1.0


def _overlong(plan: Plan) -> SoftOverlong | None:
    """The punishment in units of the reward: scaled by what a right answer is worth, all rewards together."""
    settings = plan.config.algorithm
    if not settings.soft_over_length_punishment:
        return None
    rewards = zip(plan.config.rewards, plan.reward_specs(), plan.reward_options, strict=True)
    scale = sum(abs(reward.weight) * _full_value(spec, options) for reward, spec, options in rewards)
    return SoftOverlong(max_new_tokens=plan.config.sampling.max_new_tokens, cache_length=int(settings.cache_length), correct_score=scale)
