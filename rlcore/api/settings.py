"""For plugins with their own settings file: typed sections, a TOML file and flags merged into them, and rlcore's error messages.

A section is a pydantic model derived from ``Section``; ``model_settings`` lists its leaves with their flags. ``file_layer`` and
``flag_layer`` read the values of a file and of the command line. ``combine`` merges them into a ``Draft``, which knows the origin of each
value. ``validation_error`` turns a validation error of its values into one sentence. ``core_settings`` are the settings of ``rlcore
train``. ``without_bounds`` is a type without its bounds.

A plugin that remarks on the settings of a run (``rlcore_remark_run``) receives a ``RuleContext``. ``AlgorithmSection`` and
``ScheduleSection`` have defaults to compare with, ``BACKENDS`` and ``DEADLINE_SETTINGS`` are paths of settings; ``in_one_process`` and
``ratio_is_one`` say how the run works, and ``needed_reach`` how far apart its processes may be.

``LISTS`` and ``UPDATE_PARTS`` are the settings that name several plugins, or a part of an update, and their kinds.
"""

from __future__ import annotations

from rlcore.config.layers import Draft, Layer, TypedFlag, as_typed, combine, file_layer, flag_layer, get_path
from rlcore.config.plugin_selection import LISTS, UPDATE_PARTS
from rlcore.config.resolve import in_one_process, needed_reach, ratio_is_one
from rlcore.config.rules import BACKENDS, RuleContext
from rlcore.config.run_config import AlgorithmSection, ScheduleSection
from rlcore.config.section import Section, setting
from rlcore.config.setting_table import Setting, core_settings, expected, from_text, model_settings, without_bounds
from rlcore.config.validation_errors import validation_error
from rlcore.contracts.specs import DEADLINE_SETTINGS
from rlcore.registry.error_context import closest

__all__ = [
    "BACKENDS",
    "DEADLINE_SETTINGS",
    "LISTS",
    "UPDATE_PARTS",
    "AlgorithmSection",
    "Draft",
    "Layer",
    "RuleContext",
    "ScheduleSection",
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
    "in_one_process",
    "model_settings",
    "needed_reach",
    "ratio_is_one",
    "setting",
    "validation_error",
    "without_bounds",
]
