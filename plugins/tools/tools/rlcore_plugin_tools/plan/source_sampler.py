"""The sampler of the sources of a workload, by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlcore.api import ConfigError, PluginError, PluginKind, SamplerContext
from rlcore.api.commands import Registry
from rlcore.api.schedule import ChosenSampler
from rlcore.api.settings import combine, file_layer, validation_error
from rlcore_plugin_tools.plan.workload_model import Workload

__all__ = ["sampler_among"]


def sampler_among(workload: Workload, file: Path, registry: Registry) -> Callable[[int], ChosenSampler]:
    """Return the function that makes the sampler of the sources with a seed. ``file``: that of the workload.

    Raises PluginError or ConfigError for a sampler or an option that is not there, and for one that cannot draw among sources."""
    name, draft = workload.sampler, combine([file_layer(file)])
    try:
        who = f"sampler {name} of {registry.owner(PluginKind.SAMPLER, name)}"
        model = registry.options_model(PluginKind.SAMPLER, name)
    except PluginError as error:
        raise PluginError(f"{draft.where('sampler')}{error}") from error
    options: Any = None
    if model is not None:
        try:
            options = model.model_validate(workload.sampler_options)
        except ValidationError as error:
            raise validation_error(error, draft, model, prefix="sampler_options", owner=who) from error
    elif workload.sampler_options:
        raise ConfigError(f"{draft.where('sampler_options')}{who} has no options; leave [sampler_options] out")

    def made(seed: int) -> ChosenSampler:
        shares = [share for share, _ in workload.drawn]
        context = SamplerContext(items=len(shares), ids=[source.name for source in workload.sources], weights=shares, seed=seed)
        return ChosenSampler(registry.make(PluginKind.SAMPLER, name, context, options=options), name, who, len(shares))

    try:
        made(0)
    except ConfigError as error:
        raise ConfigError(f"{draft.where('sampler')}{error}") from error
    return made
