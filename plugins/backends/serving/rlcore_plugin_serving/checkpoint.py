"""The tensors that a version of the weights must contain: names and shapes of those in the model's checkpoint, from which the engine was
loaded. Only the headers of the files are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rlcore.api import ConfigError, InferenceContext, WeightsError, WeightsKind, WeightsManifest

__all__ = ["HEAD", "CheckpointShapes", "is_tied", "local_folder", "read_shapes"]

HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"
_FLOATS = {"float64", "float32", "float16", "bfloat16"}


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of the model in a folder, by name.

    If there is an index, only the files that it names belong to the model. Raises ConfigError if there is no safetensors file, or one that
    cannot be read.
    """
    found: dict[str, tuple[int, ...]] = {}
    for path in _files(folder):
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(min(size, path.stat().st_size)))
            found |= {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is not a readable safetensors file ({error}); save or download the checkpoint again") from error
    if not found:
        raise ConfigError(
            f"model {str(folder)!r} holds no safetensors file, which lists the tensors of a version; save it with save_pretrained"
        )
    return found


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    try:
        return sorted({folder / name for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{index} is not an index of safetensors files ({error}); save or download the checkpoint again") from error


class CheckpointShapes:
    """The check of a manifest against the tensors of the model. ``tied``: the head of the model is its embedding."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], *, tied: bool) -> None:
        self._shapes = dict(shapes)
        self._tied = tied
        if tied and _EMBEDDING in self._shapes:
            self._shapes.setdefault(HEAD, self._shapes[_EMBEDDING])

    @property
    def head_of(self) -> str | None:
        """The tensor that the head repeats; None if the head has its own."""
        return _EMBEDDING if self._tied and _EMBEDDING in self._shapes else None

    def check(self, version: int, manifest: WeightsManifest) -> None:
        """Raise WeightsError, which names the tensor, if the manifest is not that of this model's whole weights. A tied head may be left
        out."""
        if manifest.kind is not WeightsKind.FULL:
            raise WeightsError(f"version {version} is of kind {manifest.kind}; this engine takes whole weights, kind {WeightsKind.FULL}")
        sent = {info.name: info for info in manifest.tensors}
        optional = {HEAD} if self.head_of else set()
        if absent := sorted(set(self._shapes) - set(sent) - optional):
            raise WeightsError(f"version {version} lacks tensor {absent[0]!r} of the model ({len(absent)} missing)")
        if strange := sorted(set(sent) - set(self._shapes)):
            raise WeightsError(f"version {version} has tensor {strange[0]!r}, which the model does not have ({len(strange)} such)")
        for name, info in sent.items():
            if tuple(info.shape) != self._shapes[name]:
                raise WeightsError(
                    f"version {version}: tensor {name!r} has shape {list(info.shape)}, the model's has {list(self._shapes[name])}"
                )
            if info.dtype not in _FLOATS:
                raise WeightsError(f"version {version}: tensor {name!r} is {info.dtype}; this backend takes {', '.join(sorted(_FLOATS))}")


def local_folder(model: str) -> Path:
    """Return the folder from which an engine on this machine reads a model: the folder itself, or the local cache of the hub."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, local_files_only=True, allow_patterns=["*.json", "*.safetensors"]))


def is_tied(context: InferenceContext) -> bool:
    """Return whether the head of the model is its embedding, by its configuration."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(context.model, trust_remote_code=context.trust_remote_code)
    return bool(getattr(config.get_text_config(decoder=True), "tie_word_embeddings", False))
