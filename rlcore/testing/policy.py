"""A language model that is a table: it predicts a token from the two before it, and learns.

Pure numpy: float32 weights, float64 arithmetic, exact log probabilities and gradients. Knows nothing of sampling or optimizers.
Axes: ``T`` tokens of a sequence, ``V`` vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rlcore.contracts.errors import ConfigError, WeightsError
from rlcore.contracts.snapshots import Bucket, Tensor, TensorInfo, WeightsKind, WeightsManifest

__all__ = ["ComingPolicy", "FakePolicy", "log_softmax"]

LAST = "last.weight"
"""float32[V, V]: logits given the last token."""
PAIR = "pair.weight"
"""float32[(V + 1) * V, V]: logits given the last two; the row of (V, a) is for a sequence that is the single token ``a``."""
FILE = "fake_policy.npz"


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return the log softmax over the last axis, float64[..., V]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@dataclass(frozen=True)
class FakePolicy:
    """One version of the weights, immutable; ``last`` float32[V, V], ``pair`` float32[(V + 1) * V, V]."""

    last: np.ndarray
    pair: np.ndarray

    def __post_init__(self) -> None:
        for name in ("last", "pair"):
            array = np.array(getattr(self, name), np.float32)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def random(cls, vocabulary: int, seed: int = 0, scale: float = 0.1) -> FakePolicy:
        """Return weights drawn from N(0, scale^2)."""
        draw = np.random.default_rng(seed)
        rows = (vocabulary + 1) * vocabulary
        return cls(draw.normal(0, scale, (vocabulary, vocabulary)), draw.normal(0, scale, (rows, vocabulary)))

    @property
    def vocabulary(self) -> int:
        """The size of the vocabulary, V."""
        return int(self.last.shape[0])

    def _contexts(self, token_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids = np.asarray(token_ids, np.int64)
        before = np.concatenate([[self.vocabulary], ids[:-1]])
        return ids, before * self.vocabulary + ids

    def logits(self, token_ids: np.ndarray) -> np.ndarray:
        """Return logits: int32[T] -> float64[T, V]; row ``t`` predicts the token after ``token_ids[: t + 1]``."""
        last, pair = self._contexts(token_ids)
        return np.asarray(self.last[last].astype(np.float64) + self.pair[pair])

    def logprobs(self, token_ids: np.ndarray, temperature: float = 1.0) -> np.ndarray:
        """Return log probabilities: int32[T] -> float64[T - 1], of each token after the first."""
        rows = log_softmax(self.logits(token_ids[:-1]) / temperature)
        return np.asarray(rows[np.arange(len(rows)), np.asarray(token_ids[1:], np.int64)])

    def add_gradient(self, into: Mapping[str, np.ndarray], token_ids: np.ndarray, coefficients: np.ndarray, temperature: float) -> None:
        """Add the gradient of ``sum(coefficients * logprobs(token_ids))`` to float64 buffers shaped as the weights.

        ``coefficients`` float64[T - 1]. Tokens are added one after the other, so the sum does not depend on how a batch is cut.
        """
        last, pair = self._contexts(token_ids[:-1])
        rows = -np.exp(log_softmax(self.logits(token_ids[:-1]) / temperature))
        rows[np.arange(len(rows)), np.asarray(token_ids[1:], np.int64)] += 1.0
        rows *= np.asarray(coefficients, np.float64)[:, None] / temperature
        np.add.at(into[LAST], last, rows)
        np.add.at(into[PAIR], pair, rows)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return name -> weight, read-only."""
        return {LAST: self.last, PAIR: self.pair}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield name and tensor of each weight."""
        for name, array in self.arrays().items():
            yield name, Tensor(dtype="float32", shape=array.shape, data=array)

    def check(self, tensors: Sequence[TensorInfo], manifest: WeightsManifest | None = None) -> None:
        """Raise WeightsError, naming the tensor, if one is missing, has another shape, or is not an array of float32. ``manifest``: the
        manifest that came with them; None for whole weights."""
        sent = {info.name: info for info in tensors}
        shapes = {name: own.shape for name, own in self.arrays().items()}
        if manifest is not None and manifest.kind is WeightsKind.ADAPTER:
            rank = int(manifest.extra["rank"])
            pairs = {name: {"lora_A": (rank, columns), "lora_B": (rows, rank)} for name, (rows, columns) in shapes.items()}
            shapes = {f"{name}.{part}": shape for name, pair in pairs.items() for part, shape in pair.items()}
        for name, shape in shapes.items():
            if name not in sent:
                raise WeightsError(f"the snapshot lacks tensor {name!r}, which the model has")
            if tuple(sent[name].shape) != shape:
                raise WeightsError(f"tensor {name!r} has shape {tuple(sent[name].shape)}, the model's is {shape}")
            if sent[name].dtype != "float32":
                raise WeightsError(f"tensor {name!r} is {sent[name].dtype}, the model takes float32")

    def replaced(self, tensors: Mapping[str, Tensor]) -> FakePolicy:
        """Return a policy with other weights of the same shapes; WeightsError, naming the tensor, if one is missing or does not fit."""
        self.check([TensorInfo(name=name, dtype=tensor.dtype, shape=tensor.shape) for name, tensor in tensors.items()])
        return FakePolicy(*(tensors[name].data.reshape(own.shape) for name, own in self.arrays().items()))

    def save(self, folder: Path, dtype: str | None = None) -> None:
        """Write ``config.json`` and the weights, rounded to ``dtype`` if one is named, into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / FILE, last=self.last.astype(dtype or np.float32), pair=self.pair.astype(dtype or np.float32))
        (folder / "config.json").write_text(json.dumps({"model_type": "rlcore-fake", "vocab_size": self.vocabulary}), "utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> FakePolicy:
        """Read the file that ``save`` wrote."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise ConfigError(f"model {str(folder)!r} has no {FILE}: write one with rlcore.testing.write_fake_model(folder)")
        with np.load(path) as stored:
            return cls(stored["last"], stored["pair"])


class ComingPolicy:
    """A version on its way into an engine that swaps: tensors are copied as they come, and are a policy once all have come."""

    def __init__(
        self, served: FakePolicy, version: int, manifest: WeightsManifest, base: FakePolicy | None = None, serves: int = -1
    ) -> None:
        """``base``: the whole weights that came last, for an adapter; ``serves``: the version of ``served``, for a delta. An engine that
        takes whole weights alone leaves both out."""
        if manifest.kind is not WeightsKind.FULL and base is None:
            raise WeightsError(f"version {version} is of kind {manifest.kind}, and the engine holds no whole weights")
        if manifest.kind is WeightsKind.DELTA and manifest.extra.get("base") != str(serves):
            raise WeightsError(f"version {version} is a delta of version {manifest.extra.get('base')}, and the engine serves {serves}")
        served.check(manifest.tensors, manifest)
        self.version, self.kind = version, manifest.kind
        self._served, self._base = served, base or served
        self._due = [info.name for info in manifest.tensors]
        self._tensors: dict[str, Tensor] = {}

    def take(self, bucket: Bucket) -> None:
        """Copy a bucket's tensors; WeightsError for one that is not due."""
        for name, tensor in bucket.tensors.items():
            if name not in self._due:
                raise WeightsError(f"bucket {bucket.index} of version {bucket.version} brings tensor {name!r}, which is not due")
            self._due.remove(name)
            self._tensors[name] = replace(tensor, data=np.array(tensor.data))

    def whole(self) -> FakePolicy:
        """Return the policy; WeightsError, naming the tensor, if one has not come."""
        if self.kind is WeightsKind.FULL or self._due:
            return self._served.replaced(self._tensors)
        came = {name: tensor.data.reshape(tensor.shape) for name, tensor in self._tensors.items()}
        if self.kind is WeightsKind.DELTA:
            return FakePolicy(*(own + came[name] for name, own in self._served.arrays().items()))
        return FakePolicy(*(own + came[f"{name}.lora_B"] @ came[f"{name}.lora_A"] for name, own in self._base.arrays().items()))
