"""Check that a model folder exists and is complete, without loading the model. Reads only JSON and opens no network connection."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import ConfigError

__all__ = ["check_checkpoint", "check_tokenizer", "code_of", "is_hub_name", "longest_context"]

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WEIGHTS = ("*.safetensors", "*.bin", "*.safetensors.index.json", "*.bin.index.json")
_INDEX = "model.safetensors.index.json"
_LONGEST_HEADER = 100_000_000
"""Bytes: the maximum that the safetensors library accepts."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "tiktoken.model")

_MEDIA = {"vision_config": "a vision model", "audio_config": "an audio model"}
"""Tables of a ``config.json`` that only models of images, videos or sounds have, and the kind of such a model."""
_CONDITIONAL = "ForConditionalGeneration"
"""The end of the class name of models that read images or sounds, or that have an encoder."""


def is_hub_name(name: str) -> bool:
    """Return whether the name has the form ``org/name`` and no such local path exists."""
    return bool(_HUB.fullmatch(name)) and not Path(name).exists()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid JSON ({error}): the checkpoint is damaged; copy or save it again") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} must hold a JSON object, not a {type(found).__name__}; copy or save the checkpoint again")
    return found


def check_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the ``config.json`` of a checkpoint. Raises ConfigError if the folder cannot be loaded as a model."""
    if not folder.is_dir():
        raise ConfigError(f"model {folder} is a file, not a folder; type -m and the folder of a Hugging Face checkpoint")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model {folder} has no config.json, so it is not a Hugging Face checkpoint; type -m and a folder that has one")
    config = _read(folder / "config.json")
    if not config.get("model_type"):
        raise ConfigError(f"{folder / 'config.json'} has no model_type, so no architecture can be chosen; save the checkpoint again")
    _check_causal(folder, config)
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        raise ConfigError(f"model {folder} holds no weights (*.safetensors or *.bin); save the checkpoint again")
    for file in _weight_files(folder):
        _check_safetensors(file)
    return config


def _check_causal(folder: Path, config: dict[str, Any]) -> None:
    """Raise ConfigError if the config describes a model that reads more than text, or an encoder with a decoder."""
    media = [key for key in _MEDIA if config.get(key) is not None]
    listed = config.get("architectures")
    named = [name for name in listed if str(name).endswith(_CONDITIONAL)] if isinstance(listed, list) else []
    if not media and not named:
        return
    kind = f"{_MEDIA[media[0]]} ({', '.join([*media, *named])})" if media else f"a {named[0]}"
    raise ConfigError(f"model {folder} is {kind}, but rlcore trains causal language models of text only; type -m and a model …ForCausalLM")


def _weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of the model; an empty list if it is stored in another format."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    shards = _read(folder / _INDEX).get("weight_map", {}) if (folder / _INDEX).is_file() else {}
    return [folder / name for name in sorted(set(shards.values()))]


def _check_safetensors(file: Path) -> None:
    """Raise ConfigError if a weight file is missing, has another format, or is truncated. Reads only its header."""
    again = "copy or download the checkpoint again"
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            length = int.from_bytes(start, "little")
            header = stream.read(length) if length <= _LONGEST_HEADER else b""
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist, but {_INDEX} names it as a part of the model; {again}") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror or error}); fix its permissions, or {again}") from error
    if not size:
        raise ConfigError(f"{file} is empty; {again}")
    if start == b"version ":
        raise ConfigError(f"{file} is a Git LFS pointer instead of the weights; type git lfs pull in the folder of the model")
    if len(start) == 8 and not header:
        raise ConfigError(f"{file} is not a safetensors file; {again}")
    try:
        tables = json.loads(header) if len(header) == length else {}
        promised = 8 + length + max((table["data_offsets"][1] for table in tables.values() if "data_offsets" in table), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ConfigError(f"{file} is not a safetensors file: its header cannot be read; {again}") from error
    if size < promised:
        raise ConfigError(f"{file} is truncated: at least {promised - size} bytes are missing at its end; {again}")


def check_tokenizer(folder: Path) -> None:
    """Raise ConfigError if a folder holds no tokenizer."""
    if not folder.is_dir():
        raise ConfigError(f"there is no tokenizer folder {folder}; type --tokenizer-path and a folder that has one")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ConfigError(f"{folder} holds no tokenizer (tokenizer.json or a vocabulary); type --tokenizer-path and a folder that has one")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            _read(folder / name)


def code_of(folder: Path) -> list[Path]:
    """Return the files of a model or tokenizer folder that refer to Python code in the folder."""
    files = [folder / name for name in ("config.json", "tokenizer_config.json")]
    return [file for file in files if file.is_file() and "auto_map" in _read(file)]


def longest_context(config: dict[str, Any]) -> int | None:
    """Return ``max_position_embeddings`` of a model's ``config.json``, or None if it has none."""
    for table in (config, config.get("text_config")):
        limit = table.get("max_position_embeddings") if isinstance(table, dict) else None
        if isinstance(limit, int):
            return limit
    return None
