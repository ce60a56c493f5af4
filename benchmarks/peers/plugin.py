"""What rlcore's side of the comparison needs beside its own: the reward ``parity``, and ``transformers`` with lengths by a stop rule."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlcore_plugin_transformers import CAPABILITIES

from benchmarks.peers.work import Work, row_lengths
from rlcore.api import InferenceBackend, InferenceBackendSpec, InferenceContext, Request, Reward, RewardInput, RewardSpec, Score, hookimpl

rlcore_api = "1.0"

FOLDER = "RLCORE_BENCH_WORK"
"""The environment variable that names the folder of the work."""


@hookimpl
def rlcore_register_rewards() -> Sequence[RewardSpec]:
    """The reward of shapes whose model has learned nothing."""
    return [RewardSpec(name="parity", target=f"{__name__}:Parity", summary="1 for a response of an even number of characters")]


@hookimpl
def rlcore_register_inference_backends() -> Sequence[InferenceBackendSpec]:
    """The backend of the heavy-tailed shape."""
    return [
        InferenceBackendSpec(
            name="cut_transformers",
            target=f"{__name__}:cut_transformers",
            config="rlcore_plugin_transformers.options:TransformersOptions",
            summary="transformers, each request cut at a length that is drawn log-normal",
            requires_module="transformers",
            capabilities=CAPABILITIES,
        )
    ]


class Parity(Reward):
    """A coin that both sides can compute."""

    def score(self, item: RewardInput) -> Score:
        """1 or 0."""
        even = float(len(item.text) % 2 == 0)
        return Score(value=even, accuracy=even)


def cut_transformers(context: InferenceContext, options: object = None) -> InferenceBackend:
    """The backend ``transformers`` whose k-th request is as long as the k-th row of the work."""
    from rlcore_plugin_transformers.engine import TransformersBackend
    from rlcore_plugin_transformers.options import TransformersOptions

    class Cut(TransformersBackend):
        work = Work.read(Path(os.environ[FOLDER]))
        seen = 0

        def submit(self, requests: Sequence[Request]) -> None:
            super().submit([self._cut(request) for request in requests])

        def _cut(self, request: Request) -> Request:
            step, row = divmod(self.seen, self.work.prompts * self.work.group)
            self.seen += 1
            length = int(row_lengths(self.work, step)[row])
            return replace(request, sampling=replace(request.sampling, max_new_tokens=length))

    assert options is None or isinstance(options, TransformersOptions)
    return Cut(context, options)
