"""A model folder, looked at without loading it: is it there, is it whole enough to load? Reads JSON only, opens no network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import ConfigError

__all__ = ["check_checkpoint", "check_tokenizer", "code_of", "is_hub_name", "longest_context"]

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WEIGHTS = ("*.safetensors", "*.bin", "*.safetensors.index.json", "*.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "tiktoken.model")


def is_hub_name(name: str) -> bool:
    """True for ``org/name``, where no such folder is here."""
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
    """The ``config.json`` of a checkpoint; ConfigError, in one sentence, where the folder cannot be loaded as a model."""
    if not folder.is_dir():
        raise ConfigError(f"model {folder} is a file, not a folder; type -m and the folder of a Hugging Face checkpoint")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model {folder} has no config.json, so it is no Hugging Face checkpoint; type -m and a folder that has one")
    config = _read(folder / "config.json")
    if not config.get("model_type"):
        raise ConfigError(f"{folder / 'config.json'} has no model_type, so no architecture can be chosen; save the checkpoint again")
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        raise ConfigError(f"model {folder} holds no weights (*.safetensors or *.bin); save the checkpoint again")
    return config


def check_tokenizer(folder: Path) -> None:
    """ConfigError where a folder holds no tokenizer."""
    if not folder.is_dir():
        raise ConfigError(f"there is no tokenizer folder {folder}; type --tokenizer-path and a folder that has one")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ConfigError(f"{folder} holds no tokenizer (tokenizer.json or a vocabulary); type --tokenizer-path and a folder that has one")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            _read(folder / name)


def code_of(folder: Path) -> list[Path]:
    """The files of a model or tokenizer folder that name Python code which the folder brings along."""
    files = [folder / name for name in ("config.json", "tokenizer_config.json")]
    return [file for file in files if file.is_file() and "auto_map" in _read(file)]


def longest_context(config: dict[str, Any]) -> int | None:
    """``max_position_embeddings`` of a model's ``config.json``, None where it has none."""
    for table in (config, config.get("text_config")):
        limit = table.get("max_position_embeddings") if isinstance(table, dict) else None
        if isinstance(limit, int):
            return limit
    return None
