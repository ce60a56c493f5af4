"""Every setting that reads "auto", resolved, with the reason in words. Nothing that the user set is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlcore.config.layers import get_path, replaced
from rlcore.config.plugin_selection import PluginSelection
from rlcore.config.run_config import RunConfig
from rlcore.contracts.specs import RewardSpec
from rlcore.host.threads import cores

__all__ = ["Resolved", "ratio_is_one", "resolve", "resolve_declared"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """One setting that read "auto": its value now, and why."""

    path: str
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.path} = {self.value} ({self.why})"


def _rollouts_per_forward(config: RunConfig) -> tuple[int, str]:
    generations, groups = config.sampling.num_generations, int(config.training.train_minibatch_size)
    return groups * generations, f"{groups} group{'s' * (groups > 1)} of {generations}, as far as tokens_per_forward lets them"


def _buffer(config: RunConfig) -> tuple[int, str]:
    return (int(config.schedule.max_staleness) + 1) * config.training.train_batch_size, "(max_staleness + 1) x train_batch_size"


def _one_step(config: RunConfig) -> bool:
    """True where a batch makes a single optimizer step."""
    return min(config.algorithm.updates_per_batch, config.training.train_batch_size) * config.algorithm.epochs_per_batch == 1


def ratio_is_one(config: RunConfig) -> bool:
    """True where the policy is its own old policy in every forward that trains; of a resolved configuration."""
    return config.algorithm.old_logprobs == "trainer" and _one_step(config)


def _old_logprobs(config: RunConfig) -> tuple[str, str]:
    if config.algorithm.mismatch_correction != "none":
        return "trainer", "mismatch_correction compares them with the sampler's"
    if config.sampling.truncates:
        return "trainer", "top-p or top-k truncates the sampler, whose log probabilities are not the policy's"
    if config.schedule.max_staleness == 0 and _one_step(config):
        return "trainer", "free with one optimizer step per batch and max_staleness 0"
    if config.schedule.max_staleness == 0:
        return "rollout", "the sampler's are those of the policy before the first of several optimizer steps"
    return "rollout", "the policy that sampled may be older than the one that trains"


_AUTOS: tuple[tuple[str, Callable[[RunConfig], tuple[Any, str]]], ...] = (
    ("inference.inference_batch_size", lambda config: (config.training.train_batch_size, "train_batch_size")),
    ("inference.inference_microbatch_size", lambda config: (config.inference.inference_batch_size, "inference_batch_size")),
    ("training.train_minibatch_size", lambda config: (config.training.train_batch_size, "train_batch_size")),
    ("training.train_microbatch_size", _rollouts_per_forward),
    ("algorithm.cache_length", lambda config: (min(1024, config.sampling.max_new_tokens // 4), "min(1024, max_new_tokens / 4)")),
    ("algorithm.old_logprobs", _old_logprobs),
    ("schedule.data_actor_buffer_size_limit", _buffer),
    ("schedule.reward_workers", lambda config: (max(1, cores() - 1), f"{cores()} cores - 1, at least 1")),
)
"""In this order: a later one may read an earlier one's value."""


def resolve(config: RunConfig, chosen: PluginSelection) -> tuple[RunConfig, tuple[Resolved, ...]]:
    """The configuration without "auto", but for what ``chosen`` leaves open; and every one resolved."""
    done: list[Resolved] = []
    for path, (name, why) in chosen.autos.items():
        if name != "auto":
            done.append(Resolved(path, name, why))
            config = replaced(config, path, name)
    for path, rule in _AUTOS:
        if get_path(config, path) == "auto":
            value, why = rule(config)
            done.append(Resolved(path, value, why))
            config = replaced(config, path, value)
    return config, tuple(done)


def resolve_declared(config: RunConfig, chosen: PluginSelection) -> tuple[RunConfig, tuple[Resolved, ...]]:
    """What plugins that are installed declare, if nobody set it: the range of the correction, the deadline of every reward."""
    done: list[Resolved] = []
    correction, kind = chosen.spec("algorithm.mismatch_correction"), config.algorithm.mismatch_correction
    if config.algorithm.mismatch_range == "auto" and (kind == "none" or correction is not None):
        bounds = correction.usual_range if correction and correction.usual_range else None
        why = f"as mismatch_correction {kind} asks for: {correction.source}" if bounds else f"mismatch_correction {kind} has no bounds"
        done.append(Resolved("algorithm.mismatch_range", bounds, why))
        config = replaced(config, done[-1].path, bounds)
    for index, entry in enumerate(config.rewards):
        spec = chosen.spec(f"rewards.{index}.name")
        if entry.deadline == "auto" and isinstance(spec, RewardSpec):
            done.append(Resolved(f"rewards.{index}.deadline", spec.deadline, f"as reward {spec.name} asks for"))
            config = replaced(config, done[-1].path, spec.deadline)
    return config, tuple(done)
