"""The backend ``transformers`` whose requests end by the stop rule of the heavy-tailed shape."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlcore_plugin_transformers.engine import TransformersBackend
from rlcore_plugin_transformers.options import TransformersOptions

from benchmarks.peers.work import Work, row_lengths
from rlcore.api import InferenceContext, Request

__all__ = ["FOLDER", "CutTransformers"]

FOLDER = "RLCORE_BENCH_WORK"
"""The environment variable that names the folder of the work."""


class CutTransformers(TransformersBackend):
    """Its k-th request is as long as the k-th row of the work."""

    def __init__(self, context: InferenceContext, options: TransformersOptions | None = None) -> None:
        self._work: Work | None = None  # none while the engine tries itself on prompts of its own
        super().__init__(context, options)
        self._work = Work.read(Path(os.environ[FOLDER]))
        self._seen = 0

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests, each with its row's length."""
        super().submit(requests if self._work is None else [self._cut(request, self._work) for request in requests])

    def _cut(self, request: Request, work: Work) -> Request:
        step, row = divmod(self._seen, work.prompts * work.group)
        self._seen += 1
        return replace(request, sampling=replace(request.sampling, max_new_tokens=int(row_lengths(work, step)[row])))
