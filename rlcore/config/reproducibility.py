"""How far two runs of one plan agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlcore.config.run_config import RunConfig, SamplingSection
from rlcore.contracts.capabilities import InferenceCapabilities, Reproducible
from rlcore.host.devices import device_of

__all__ = ["Reproducibility", "reproducibility"]


@dataclass(frozen=True, slots=True)
class Reproducibility:
    """The parts that two runs of a plan have in common, and the reason. Rewards and conversations are assumed to answer alike."""

    level: Reproducible
    why: str

    def __str__(self) -> str:
        return f"reproducible: {self.level} ({self.why})"


def reproducibility(config: RunConfig, spec: Callable[[str], Any]) -> Reproducibility:
    """Of a resolved configuration; ``spec``: of a chosen plugin, by the path of the setting, None if it is not installed."""
    why = next(_rounding(config, spec), "")
    return (
        Reproducibility("seeded", why)
        if why
        else Reproducibility("bitwise", "max_staleness 0, CPU, and both backends are bitwise reproducible")
    )


def _rounding(config: RunConfig, spec: Callable[[str], Any]) -> Iterator[str]:
    """Why two runs may differ."""
    if not config.schedule.alternating:
        yield "max_staleness above 0: timing decides which weights sample what"
    if config.sampling.oversampling and config.sampling.conversation != SamplingSection().conversation:
        yield "sampling.oversampling: timing decides which conversations of several turns end first"
    if config.sampling.environment != "none" and not getattr(spec("sampling.environment"), "deterministic", False):
        yield f"environment {config.sampling.environment} does not promise the same episode for the same answers"
    for role, section in (("inference", config.inference), ("training", config.training)):
        found = getattr(spec(f"{role}.name"), "capabilities", None)
        if found is None or found.reproducible != "bitwise":
            yield f"{role} backend {section.name} does not promise more"
        elif isinstance(found, InferenceCapabilities) and not found.counter_noise:
            yield f"the samples of inference backend {section.name} depend on timing"
        elsewhere = config.run.master_address is not None and section.device == "auto" and found is not None and found.devices != {"cpu"}
        device = "auto" if elsewhere else device_of(section.device, found.devices if found else None)
        if device != "cpu":
            yield f"{role} device {device}: {'it may be a GPU, where' if device == 'auto' else 'on it'} the order of sums varies"
