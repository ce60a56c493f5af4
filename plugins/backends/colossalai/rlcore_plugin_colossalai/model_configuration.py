"""The ``config.json`` of a model for transformers 4.51, which ColossalAI's policies need, so that it describes the same model as in
transformers 5.

transformers 5 keeps the parameters of rotary embeddings in ``rope_parameters``. 4.51 does not know that key and silently uses 10000 as the
base. If both versions know a setting but compute different results from it, the reading of transformers 5 counts: the driver and the
engines use it. Training changes no setting except the precision, so a model is saved with the settings that it was read from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError

__all__ = ["for_transformers_4", "read_configuration"]

_ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
_SCALED = ("yarn", "longrope", "llama3")
"""Types for which transformers 5 sets ``original_max_position_embeddings`` if the file does not."""
_BASES = {"cohere": 500_000.0}
"""The base that transformers 5 uses if the file has none, for model types for which 4.51 uses another one."""


def read_configuration(folder: Path) -> Any:
    """Return the configuration object of transformers 4.51 for the model in a folder.

    Raises ConfigError for a model that 4.51 cannot compute in the same way.
    """
    from transformers import CONFIG_MAPPING

    path = folder / "config.json"
    config = for_transformers_4(json.loads(path.read_text(encoding="utf-8")), str(path))
    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise ConfigError(
            f"{path}: transformers 4.51, which the trainer colossalai needs, does not know model_type {kind!r}; "
            "name another -m, or train with --trainer torch"
        )
    return CONFIG_MAPPING[kind].from_dict(config)


def for_transformers_4(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the settings of a ``config.json`` in the form for 4.51, whichever version wrote the file ``where``.

    Raises ConfigError for settings that 4.51 cannot compute.
    """
    told = {key: value for key, value in config.items() if key not in ("rope_parameters", "dtype", "layer_types")}
    if config.get("dtype") is not None:
        told.setdefault("torch_dtype", config["dtype"])
    if told.get("head_dim", 0) is None:
        del told["head_dim"]
    if not config.get("use_sliding_window", config.get("model_type") != "qwen2"):
        told["sliding_window"] = None  # 4.51 masks by the window of a qwen2 even if it is switched off
    _refuse_windows(config, where)
    rope = _rope(config, where)
    return told if rope is None else {**told, **_legacy_rope(rope, config, where)}


def _refuse_windows(config: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for layers of several kinds, because 4.51 gives all layers one mask."""
    kinds = set(config.get("layer_types") or ())
    window, first = config.get("sliding_window"), config.get("max_window_layers") or 0
    if not kinds and config.get("use_sliding_window") and window is not None and 0 < first < config["num_hidden_layers"]:
        kinds = {"full_attention", "sliding_attention"}
    if len(kinds) > 1:
        raise _refused(where, f"has layers of several kinds ({', '.join(sorted(kinds))})")


def _rope(config: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """Return ``rope_parameters`` as transformers 5 reads them from a file of either version; None for a model without rotary embeddings."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if any(isinstance(value, Mapping) for value in given.values()):
        raise _refused(where, "has rotary embeddings that differ by layer")
    outside = {key: config[key] for key in ("rope_theta", "partial_rotary_factor") if config.get(key) is not None}
    base = _BASES.get(str(config.get("model_type")))
    if not given and not outside and base is None:
        return None
    rope = {**({} if base is None else {"rope_theta": base}), **outside, **given}
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    rope.pop("type", None)
    if rope["rope_type"] not in _ROPE_TYPES:
        raise _refused(where, f"has rope_type {rope['rope_type']!r}")
    if rope["rope_type"] in _SCALED:
        if config.get("original_max_position_embeddings"):
            rope["original_max_position_embeddings"] = config["original_max_position_embeddings"]
        rope.setdefault("original_max_position_embeddings", config["max_position_embeddings"])
    if rope["rope_type"] == "yarn" and rope.get("truncate") is False:
        raise _refused(where, "has a yarn whose range is not truncated")
    return rope


def _legacy_rope(rope: Mapping[str, Any], config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the keys that 4.51 has in place of ``rope_parameters``."""
    scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "partial_rotary_factor", "truncate")}
    told = {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if rope.get(key) is not None}
    if scaling["rope_type"] == "default":
        return {**told, "rope_scaling": None}
    if scaling["rope_type"] == "yarn":
        told |= _yarn(scaling, config)
    if scaling["rope_type"] == "longrope":
        told |= _longrope(scaling, config)
    return {**told, "rope_scaling": scaling}


def _yarn(scaling: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the longest position for 4.51, which ignores the factor and divides the longest position by the original one."""
    original = scaling["original_max_position_embeddings"]
    if scaling.get("factor") is None:
        scaling["factor"] = config["max_position_embeddings"] / original
    longest = scaling["factor"] * original
    return {"max_position_embeddings": int(longest) if longest == int(longest) else longest}


def _longrope(scaling: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the original length, which 4.51 reads from outside the scaling; it needs the factor only for the scale of the attention."""
    original = scaling.pop("original_max_position_embeddings")
    factor = scaling.get("factor") or config["max_position_embeddings"] / original
    if scaling.get("attention_factor") is None:
        scaling["attention_factor"] = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return {"original_max_position_embeddings": original}


def _refused(where: str, what: str) -> ConfigError:
    return ConfigError(
        f"{where} {what}, which transformers 4.51 of the trainer colossalai does not compute; name another -m, or train with "
        "--trainer torch"
    )
