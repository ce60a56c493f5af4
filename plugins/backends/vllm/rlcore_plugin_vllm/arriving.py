"""A version of the weights while it arrives: host copies of its tensors, complete or refused."""

from __future__ import annotations

import numpy as np
import torch

from rlcore.api import Bucket, Tensor, TensorInfo, WeightsError, WeightsManifest

__all__ = ["ArrivingWeights"]


class ArrivingWeights:
    """Copies tensors out of buckets, whose memory is lent for one call only.

    >>> arriving = ArrivingWeights(3, manifest)
    >>> arriving.take(bucket)
    >>> tensors = arriving.whole()
    """

    def __init__(self, version: int, manifest: WeightsManifest) -> None:
        self.version = version
        self._due: dict[str, TensorInfo] = {info.name: info for info in manifest.tensors}
        self._tensors: dict[str, torch.Tensor] = {}

    def take(self, bucket: Bucket) -> None:
        """Copy its tensors. WeightsError, naming the tensor, for one that is not due or is not what was announced."""
        for name, tensor in bucket.tensors.items():
            if name not in self._due:
                raise WeightsError(f"bucket {bucket.index} of version {bucket.version} brings tensor {name!r}, which is not due")
            announced = self._due.pop(name)
            if (tensor.dtype, tuple(tensor.shape)) != (announced.dtype, tuple(announced.shape)):
                raise WeightsError(
                    f"version {self.version}: tensor {name!r} came as {tensor.dtype} {list(tensor.shape)} and was announced as "
                    f"{announced.dtype} {list(announced.shape)}"
                )
            self._tensors[name] = _copied(tensor)

    def whole(self) -> dict[str, torch.Tensor]:
        """Every tensor by name; WeightsError, naming one, if not all came."""
        if self._due:
            raise WeightsError(f"version {self.version}: tensor {next(iter(self._due))!r} did not come ({len(self._due)} missing)")
        return self._tensors


def _copied(tensor: Tensor) -> torch.Tensor:
    array = torch.from_numpy(np.array(tensor.data, copy=True).reshape(tensor.shape))
    return array.view(torch.bfloat16) if tensor.dtype == "bfloat16" else array
