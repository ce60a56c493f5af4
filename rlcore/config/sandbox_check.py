"""The sandboxes that the options of rewards name: looked up and checked before anything starts, though only workers open them."""

from __future__ import annotations

from pydantic import ValidationError

from rlcore.config.chosen import Chosen, Missing
from rlcore.config.layers import Draft
from rlcore.config.options import Options
from rlcore.config.sentences import refusal
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.specs import PluginKind
from rlcore.host.catalogue import NotInstalledError
from rlcore.host.registry import Registry
from rlcore.host.sandboxes import sandbox_argument, sandboxes_in

__all__ = ["check_sandboxes"]


def check_sandboxes(chosen: Chosen, options: Options, registry: Registry, draft: Draft) -> list[Missing]:
    """What is not installed; ConfigError, with the line that sets it, if a sandbox refuses its options or cannot give the level asked for,
    PluginError if there is no sandbox of that name."""
    missing = []
    for part in chosen:
        if part.kind is not PluginKind.REWARD:
            continue
        for inner, asked in sandboxes_in(options.instances.get(part.path)):
            path = f"{part.options_path}.{inner}"
            try:
                sandbox_argument(asked, registry)
                if lost := registry.missing_target(PluginKind.SANDBOX, asked.backend):
                    raise PluginError(lost)
            except NotInstalledError as error:
                missing.append(Missing(f"sandbox {asked.backend}, which reward {part.name} uses, is not installed", error.pip))
            except ValidationError as error:
                model = registry.options_model(PluginKind.SANDBOX, asked.backend)
                assert model is not None  # it raised the error
                owner = f"sandbox {asked.backend} of {registry.owner(PluginKind.SANDBOX, asked.backend)}"
                raise refusal(error, draft, model, prefix=f"{path}.backend_options", owner=owner) from error
            except (ConfigError, PluginError) as error:
                raise type(error)(f"{draft.where(path)}{error}") from error
    return missing
