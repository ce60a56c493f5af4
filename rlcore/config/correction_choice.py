"""``mismatch_correction = "auto"``: whether tokens are weighed because the engine computes otherwise than the trainer."""

from __future__ import annotations

from rlcore.config.run_config import RunConfig
from rlcore.config.staleness import capabilities, usable
from rlcore.contracts.specs import LossSpec, PluginKind
from rlcore.registry.plugin_registry import Registry

__all__ = ["CORRECTION", "correction_choice", "engine_differs"]

CORRECTION = "algorithm.mismatch_correction"
WEIGHS = "truncated"
"""Each token's ratio, held at 2: bounded whatever an engine reports, and no token of a long answer is lost for another one's ratio."""


def correction_choice(config: RunConfig, registry: Registry, *, loss: str, training: str) -> tuple[str, str]:
    """``none`` or ``truncated``, and why: ``truncated`` if the backends may differ by more than rounding in float32, and it can weigh that.

    Names are resolved. It is never one that the rules refuse."""
    differs, why = engine_differs(config, registry, training)
    if differs and (needless := _unable(config, registry, loss)):
        return "none", f"{why}, but {needless}"
    return (WEIGHS if differs else "none"), why


def engine_differs(config: RunConfig, registry: Registry, training: str) -> tuple[bool, str]:
    """Whether the backends may differ by more than rounding in float32, and why."""
    backends = {PluginKind.INFERENCE: config.inference.name, PluginKind.TRAINING: training}
    if unknown := [f"{kind} backend {name}" for kind, name in backends.items() if usable(registry, kind, name) is None]:
        return False, f"{' and '.join(unknown)} is not known here"
    ours, theirs = (getattr(capabilities(registry, kind, name), "implementation", "") for kind, name in backends.items())
    if not ours or ours != theirs:
        return True, f"inference backend {config.inference.name} computes otherwise than training backend {training}, or does not say"
    coarse = [f"{role} in {dtype}" for role, dtype in (("inference", config.inference.dtype), ("training", config.training.dtype))]
    if coarse := [said for said in coarse if not said.endswith("float32")]:
        return True, f"{' and '.join(coarse)}: its rounding makes the log probabilities of sampler and trainer differ"
    return False, f"inference and training compute as {ours} in float32, so their log probabilities are the same"


def _unable(config: RunConfig, registry: Registry, loss: str) -> str:
    """Why no weight of tokens is allowed, "" if one is."""
    spec = usable(registry, PluginKind.LOSS, loss)
    if not isinstance(spec, LossSpec):
        return f"loss {loss} is not known here"
    if spec.sequence_ratio:
        return (
            f"loss {loss} has one ratio for a whole response, and the product over a long one soon leaves any range; "
            "--mismatch-correction sequence_truncated weighs short ones"
        )
    if config.sampling.truncates:
        return f"{config.sampling.cut[0]} truncates the sampler, whose log probabilities are not the policy's"
    if config.algorithm.old_logprobs == "rollout":
        return "old_logprobs rollout: the loss has its ratio to the sampler"
    return "" if usable(registry, PluginKind.CORRECTION, WEIGHS) else f"{WEIGHS} is not to be had here"
