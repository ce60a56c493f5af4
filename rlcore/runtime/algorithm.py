"""From the configured names to the algorithm that a consumer runs."""

from __future__ import annotations

from typing import Any

from rlcore.config import Plan
from rlcore.config.model import AlgorithmSection
from rlcore.contracts.errors import PluginError
from rlcore.contracts.interfaces import AdvantageEstimator, Loss, Need
from rlcore.contracts.specs import PluginKind, RewardSpec
from rlcore.learning.aggregation import Variation
from rlcore.learning.assemble import BatchSettings
from rlcore.learning.correction import Correction, Mismatch
from rlcore.learning.kl import Kl
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
            correction=_correction(settings),
        ),
        batch=BatchSettings(
            max_new_tokens=config.sampling.max_new_tokens,
            variation=Variation(settings.loss_variation),
            filter_truncated=settings.filter_truncated_response,
            overlong=_overlong(plan),
        ),
        seed=config.run.seed,
        updates_per_batch=min(settings.updates_per_batch, config.training.train_batch_size),
        epochs_per_batch=settings.epochs_per_batch,
        old_from_trainer=settings.old_logprobs == "trainer",
        kl_in_reward=0.0 if in_loss else settings.kl_coeff,
        kl_kind=settings.kl_kind,
    )


def _correction(settings: AlgorithmSection) -> Correction | None:
    kind, bounds = Mismatch(settings.mismatch_correction), settings.mismatch_range
    if kind is Mismatch.NONE:
        return None
    return Correction(kind=kind, low=bounds[0], high=bounds[1]) if isinstance(bounds, tuple) else Correction(kind=kind)


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
