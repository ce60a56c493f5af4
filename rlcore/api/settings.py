"""For plugins with a settings file of their own: typed sections, a TOML file and flags merged into them, and rlcore's sentences of refusal.

A section is a pydantic model derived from ``Section``; ``model_settings`` lists its leaves with their flags. ``file_layer`` and
``flag_layer`` read what a file and the command line say; ``combine`` merges them into a ``Draft``, which knows where each value is from;
``refusal`` turns a validation error of its values into one sentence. ``core_settings`` are the settings of ``rlcore train``;
``bare`` is a type without its bounds.
"""

from __future__ import annotations

from rlcore.config.layers import Draft, Layer, Typed, combine, file_layer, flag_layer, get_path, spoken
from rlcore.config.model import Section, setting
from rlcore.config.sentences import refusal
from rlcore.config.settings import Setting, bare, core_settings, expected, from_text, model_settings
from rlcore.host.blame import closest

__all__ = [
    "Draft",
    "Layer",
    "Section",
    "Setting",
    "Typed",
    "bare",
    "closest",
    "combine",
    "core_settings",
    "expected",
    "file_layer",
    "flag_layer",
    "from_text",
    "get_path",
    "model_settings",
    "refusal",
    "setting",
    "spoken",
]
