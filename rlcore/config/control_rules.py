"""The settings that a controller may change while a run trains, and the rules for a plan that names controllers."""

from __future__ import annotations

from rlcore.config.plugin_selection import Part
from rlcore.config.rules import RuleContext
from rlcore.config.section import of_a_source
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.specs import ControllerSpec, LearningRateScheduleSpec

__all__ = ["OF_LOSS", "RATE", "check_controllers"]

RATE = "training.learning_rate"
OF_LOSS = "algorithm.options."
"""The beginning of the path of a loss's option. Each may change: the loss is made anew, and keeps its state."""
_CHANGEABLE = (RATE, "algorithm.kl_coeff", "algorithm.entropy_coeff", "algorithm.filter_range", "sampling.temperature")


def check_controllers(facts: RuleContext, *, of_source: bool = False) -> None:
    """Raise ConfigError if a controller changes a setting that cannot change, or one that something else changes, too.

    :param of_source: whether these are the settings of one of ``[[sources]]``."""
    owners: dict[str, Part] = {}
    for part in facts.chosen:
        if not isinstance(part.spec, ControllerSpec):
            continue
        for path in (*part.spec.sets, *part.spec.scales):
            if of_source and of_a_source(path):
                where = facts.draft.where(part.path)
                raise ConfigError(f"{where}{part.label} changes {path}, and each of [[sources]] has its own; name another controller")
            if problem := _fixed(path, part, part.spec.scales, facts):
                raise ConfigError(f"{facts.draft.where(part.path)}{problem}")
        for path in part.spec.sets:
            if (other := owners.setdefault(path, part)) is not part:
                both = f"{other.label} and {part.label} both set {path}"
                raise ConfigError(f"{facts.draft.where('run.controllers')}{both}; keep one of them in --controllers")


def _fixed(path: str, part: Part, scaled: tuple[str, ...], facts: RuleContext) -> str:
    """Return why this controller cannot change the setting in this run, "" if it can."""
    who, config = f"{part.label} changes {path}", facts.config
    loss = facts.chosen.parts.get("algorithm.loss")
    if path.startswith(OF_LOSS):
        if loss is None or path.removeprefix(OF_LOSS) in loss.fields:
            return ""
        return f"{who}, and {loss.label} has no such option; name another --loss, or another controller"
    if path not in _CHANGEABLE:
        return f"{who}, which cannot change while a run trains; these can: {', '.join(_CHANGEABLE)}, and {OF_LOSS}NAME of the loss"
    if path == "algorithm.filter_range" and path in scaled:
        return f"{part.label} scales {path}, which is a pair; name it in sets of the class, and give both ends"
    schedule = facts.chosen.spec("training.lr_schedule")
    if path == RATE and path not in scaled and isinstance(schedule, LearningRateScheduleSpec) and not schedule.constant:
        also = f"{who}, and so does {facts.cite('training.lr_schedule')}"
        return f"{also}; type --lr-schedule constant, or name a controller that scales the rate"
    if path == "sampling.temperature" and config.sampling.temperature_end is not None:
        return f"{who}, and {facts.cite('sampling.temperature_end')} does so, too; type --temperature-end none"
    if path == "algorithm.kl_coeff" and not config.algorithm.kl_coeff:
        return f"{who}, and {facts.cite(path)} loads no reference model; type --kl-coeff 0.001"
    if path == "algorithm.filter_range" and config.algorithm.filter_range is None:
        return f"{who}, and the run has no such filter; type --filter-range 0 1"
    return ""
