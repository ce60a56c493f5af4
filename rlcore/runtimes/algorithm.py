"""From the configured names to the algorithm that a consumer runs."""

from __future__ import annotations

from typing import Any

from rlcore.config import Plan
from rlcore.interfaces import AdvantageEstimator, Loss
from rlcore.learning.aggregation import Variation
from rlcore.learning.assemble import BatchSettings
from rlcore.learning.kl import Kl
from rlcore.learning.objective import PolicyObjective
from rlcore.learning.shaping import SoftOverlong
from rlcore.roles.consumer import Algorithm
from rlcore.specs import PluginKind, RewardSpec

__all__ = ["build_algorithm"]


def build_algorithm(plan: Plan) -> Algorithm:
    """Estimator, loss and objective as instances, and the settings of the core around them."""
    config, settings = plan.config, plan.config.algorithm
    loss: Loss = _made(plan.registry.load(PluginKind.LOSS, settings.loss), plan.loss_options)
    estimator: AdvantageEstimator = _made(plan.registry.load(PluginKind.ESTIMATOR, settings.estimator), plan.estimator_options)
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
            kl_kind=Kl(settings.kl_kind),
            entropy_coeff=settings.entropy_coeff,
            skip_threshold=settings.skip_threshold,
        ),
        batch=BatchSettings(
            temperature=config.sampling.temperature,
            max_new_tokens=config.sampling.max_new_tokens,
            variation=Variation(settings.loss_variation),
            filter_truncated=settings.filter_truncated_response,
            overlong=_overlong(plan),
        ),
        seed=config.run.seed,
        updates_per_batch=settings.updates_per_batch,
        epochs_per_batch=settings.epochs_per_batch,
        old_from_trainer=settings.old_logprobs == "trainer",
        kl_in_reward=0.0 if in_loss else settings.kl_coeff,
        kl_kind=settings.kl_kind,
    )


def _made(target: Any, options: Any) -> Any:
    return target() if options is None else target(options)


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
