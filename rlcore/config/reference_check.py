"""Check the settings of the reference model, without loading it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlcore.config.model_check import check_checkpoint, is_hub_name
from rlcore.config.run_config import RunConfig
from rlcore.contracts.errors import ConfigError

__all__ = ["check_reference", "reference_notes"]

_SAME = ("vocab_size",)
_ALIKE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "tie_word_embeddings")
"""Fields of a ``config.json`` that must be equal if one model is compared with the other, and if one becomes the other."""


def check_reference(config: RunConfig, cite: Callable[[str], str], *, in_folder: bool) -> None:
    """Raise ConfigError if the reference cannot be loaded, or cannot be compared with the policy.

    :param cite: formats a setting and its value as the user typed them, from its path.
    :param in_folder: whether models are folders of Hugging Face checkpoints.
    """
    model, given = config.model, config.model.reference
    for path in ("model.reference", "model.reference_sync_steps") * (config.training.lora_rank > 0):
        if getattr(model, path.partition(".")[2]):
            raise ConfigError(
                f"{cite(path)}: with adapters ({cite('training.lora_rank')}) the reference is the model without them; leave it out, or "
                "type --lora-rank 0"
            )
    if given is None or is_hub_name(given):
        return
    where, folder = cite("model.reference"), Path(given)
    if not folder.exists():
        raise ConfigError(f"{where}: there is no such folder; name a folder of a checkpoint, or org/name of the hub")
    if not in_folder:
        return
    if not (folder / "config.json").is_file() and (folder / "model" / "config.json").is_file():
        raise ConfigError(f"{where} is a checkpoint of a run, and its model is in a folder of it; type --reference {folder / 'model'}")
    try:
        reference = check_checkpoint(folder)
    except ConfigError as error:
        raise ConfigError(f"{where}: {str(error).partition('; type -m')[0]}; name another --reference") from error
    policy = _config_of(Path(model.model))
    for field in _ALIKE if model.reference_sync_steps else _SAME:
        if policy and reference.get(field) != policy.get(field):
            moved = f", which {cite('model.reference_sync_steps')} makes it" if field not in _SAME else ""
            raise ConfigError(
                f"{where} has {field} {reference.get(field)}, and the model {model.model}{moved} has {policy.get(field)}; name another "
                "--reference"
            )


def reference_notes(config: RunConfig, cite: Callable[[str], str]) -> Iterator[str]:
    """Yield the remarks about settings of a reference that have no effect."""
    if config.model.reference_mixup_alpha != 1.0 and not config.model.reference_sync_steps:
        yield f"{cite('model.reference_mixup_alpha')} has no effect: the reference stays as it is; --reference-sync-steps moves it"


def _config_of(folder: Path) -> dict[str, Any]:
    """Return the ``config.json`` of the policy; {} if it is not here, or is damaged, which another check tells."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
