"""Check that the names in a recipe exist: its plugins, the options that it sets, and the settings of the core."""

from __future__ import annotations

from rlcore.config.plugin_selection import LISTS, UPDATE_PARTS
from rlcore.config.setting_table import core_settings
from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import LABELS, AlgorithmSpec, PluginKind
from rlcore.registry.error_context import closest
from rlcore.registry.known_plugins import NotInstalledError
from rlcore.registry.plugin_registry import Registry

__all__ = ["check_recipe"]

_OWN_TABLES = tuple(f"{path}_options" for path in UPDATE_PARTS)
_BY_NAME = tuple(tables for _, tables in LISTS.values())
_TABLES = ("algorithm.options", "algorithm.estimator_options", "algorithm.loss_options")


def check_recipe(registry: Registry, name: str) -> None:
    """Raise PluginError, naming the recipe's distribution, if the recipe names something that does not exist. Plugins that are not
    installed are allowed."""
    recipe, label = registry.spec(PluginKind.ALGORITHM, name), f"algorithm {name!r} of {registry.owner(PluginKind.ALGORITHM, name)}"
    assert isinstance(recipe, AlgorithmSpec)  # the registry keeps kinds apart
    for path, kind in {**UPDATE_PARTS, **{path: kind for path, (kind, _) in LISTS.items()}}.items():
        given = recipe.defaults.get(path, ("none", ""))[0]
        for value in given if isinstance(given, list | tuple) else (given,):
            if value != "none" and not registry.has(kind, str(value)):
                raise PluginError(
                    f"{label} sets {path} to {value!r}, which is not a known {LABELS[kind]}{closest(str(value), registry.names(kind))}"
                )
    options = _options(registry, recipe, label)
    sections = {setting.partition(".")[0] for setting in core_settings()}
    for path in recipe.defaults:
        table, _, key = path.rpartition(".")
        if table in _TABLES and options is not None and key not in options:
            parts = f"its estimator {recipe.estimator} nor its loss {recipe.loss}"
            raise PluginError(f"{label} sets the option {key}, which neither {parts} has{closest(key, options)}")
        section = path.partition(".")[0]
        by_name = table.rpartition(".")[0] in _BY_NAME
        known = by_name or table in (*_TABLES, *_OWN_TABLES, f"{section}.options")
        if (not known or section not in sections) and path not in core_settings():
            raise PluginError(f"{label} sets {path}, which is not a setting of rlcore{closest(path, core_settings())}")


def _options(registry: Registry, recipe: AlgorithmSpec, label: str) -> set[str] | None:
    """Return the options of estimator and loss; None if one of them is not installed or is broken."""
    options: set[str] = set()
    known = True
    for kind, part in ((PluginKind.ESTIMATOR, recipe.estimator), (PluginKind.LOSS, recipe.loss)):
        try:
            model = registry.options_model(kind, part)
        except NotInstalledError:
            known = False
        except PluginError as error:
            if not registry.has(kind, part):
                raise PluginError(f"{label}: {error}") from error
            known = False
        else:
            options |= set(model.model_fields) if model else set()
    return options if known else None
