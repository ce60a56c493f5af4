"""What rlcore's side of the comparison needs beside its own: the reward ``parity``, and ``transformers`` with lengths by a stop rule."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore_plugin_transformers import CAPABILITIES

from rlcore.api import InferenceBackendSpec, Reward, RewardInput, RewardSpec, Score, hookimpl

rlcore_api = "2.0"


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
            target="benchmarks.peers.cut_engine:CutTransformers",
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
