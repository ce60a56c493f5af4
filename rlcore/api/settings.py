"""For plugins with their own settings file: typed sections, a TOML file and flags merged into them, and rlcore's error messages.

A section is a pydantic model derived from ``Section``; ``model_settings`` lists its leaves with their flags. ``file_layer`` and
``flag_layer`` read the values of a file and of the command line. ``combine`` merges them into a ``Draft``, which knows the origin of each
value. ``validation_error`` turns a validation error of its values into one sentence. ``core_settings`` are the settings of ``rlcore
train``. ``without_bounds`` is a type without its bounds.
"""

from __future__ import annotations

from rlcore.config.layers import Draft, Layer, TypedFlag, as_typed, combine, file_layer, flag_layer, get_path
from rlcore.config.section import Section, setting
from rlcore.config.setting_table import Setting, core_settings, expected, from_text, model_settings, without_bounds
from rlcore.config.validation_errors import validation_error
from rlcore.registry.error_context import closest

__all__ = [
    "Draft",
    "Layer",
    "Section",
    "Setting",
    "TypedFlag",
    "as_typed",
    "closest",
    "combine",
    "core_settings",
    "expected",
    "file_layer",
    "flag_layer",
    "from_text",
    "get_path",
    "model_settings",
    "setting",
    "validation_error",
    "without_bounds",
]
