"""The work that is measured: groups of requests, what an engine made of them as a batch, and the two backends that share a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_transformers.engine import TransformersBackend

from benchmarks.gpu.device import backend_device
from rlcore.api import (
    Completion,
    InferenceContext,
    Objective,
    OptimizerSettings,
    Request,
    Rollout,
    Sampling,
    Segment,
    Snapshot,
    TrainBatch,
    TrainingContext,
)
from rlcore.learning import ClippedSurrogate, PolicyObjective
from rlcore.testing import FakeTokenizer, snapshot_of
from rlcore.testing.records import make_train_batch

__all__ = ["FULL", "TINY_LOAD", "Load", "batch_of", "contexts", "drain", "make_engine", "make_trainer", "objective", "requests", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One update: ``prompts`` groups of ``group`` completions, ``prompt`` and ``new`` tokens long; ``row_tokens``: tokens of a forward."""

    prompts: int
    group: int
    prompt: int
    new: int
    row_tokens: int

    @property
    def sequences(self) -> int:
        """Completions of the update."""
        return self.prompts * self.group

    @property
    def length(self) -> int:
        """Tokens of a prompt and its completion."""
        return self.prompt + self.new


FULL = Load(prompts=16, group=8, prompt=256, new=512, row_tokens=16_384)
TINY_LOAD = Load(prompts=2, group=2, prompt=12, new=8, row_tokens=64)


def contexts(load: Load, vocabulary: int) -> list[np.ndarray]:
    """int32[prompt] for each prompt; no token that ends a completion."""
    draw = np.random.default_rng(0)
    return [draw.integers(2, vocabulary, load.prompt).astype(np.int32) for _ in range(load.prompts)]


def requests(load: Load, vocabulary: int, seed: int) -> list[Request]:
    """Every completion of the update, sampled at temperature 1 over the whole vocabulary."""
    sampling = Sampling(temperature=1.0, max_new_tokens=load.new)
    return [
        Request(request_id=f"{place}-{member}", token_ids=context, sampling=sampling, noise=(seed, 0, place, member))
        for place, context in enumerate(contexts(load, vocabulary))
        for member in range(load.group)
    ]


def drain(engine: TransformersBackend, asked: Sequence[Request]) -> dict[str, Completion]:
    """Answers by request id."""
    engine.submit(asked)
    answers: dict[str, Completion] = {}
    while len(answers) < len(asked):
        answers |= {completion.request_id: completion for completion in engine.poll(60.0)}
    return answers


def batch_of(asked: Sequence[Request], answers: Mapping[str, Completion], load: Load) -> TrainBatch:
    """The batch of one update; advantages are drawn, since nothing judges random tokens."""
    rollouts = [_rollout(request, answers[request.request_id]) for request in asked]
    advantages = np.random.default_rng(1).normal(size=len(rollouts)).tolist()
    return make_train_batch(rollouts, advantages, group=[place // load.group for place in range(len(rollouts))])


def _rollout(request: Request, answer: Completion) -> Rollout:
    segment = Segment(
        context_ids=request.token_ids,
        token_ids=answer.token_ids,
        logprobs=answer.logprobs,
        versions=answer.versions,
        policy_mask=np.ones(len(answer.token_ids), np.bool_),
    )
    prompt, _, member = request.request_id.partition("-")
    return Rollout(prompt_id=prompt, index=int(member), segments=(segment,), text="", finish=answer.finish)


def make_engine(model: Path, load: Load, device: str, dtype: str) -> TransformersBackend:
    """An engine that takes all prompts of the load at once."""
    context = InferenceContext(
        model=str(model),
        tokenizer=FakeTokenizer(),
        prompts_per_forward=load.prompts,
        max_tokens=load.length,
        dtype=dtype,
        device=backend_device(device),
    )
    return TransformersBackend(context)


def make_trainer(model: Path, load: Load, device: str, dtype: str, row_tokens: int | None = None) -> TorchBackend:
    """A trainer that cuts by tokens alone."""
    context = TrainingContext(
        model=str(model),
        optimizer=OptimizerSettings(learning_rate=1e-6, total_steps=100),
        rollouts_per_forward=load.sequences,
        tokens_per_forward=row_tokens or load.row_tokens,
        prompts_per_slice=load.prompts,
        dtype=dtype,
        device=backend_device(device),
    )
    trainer = TorchBackend(context, TorchOptions())
    trainer.setup(context)
    return trainer


def objective() -> Objective:
    """The clipped surrogate, on-policy: as TRL's default, without a reference model."""
    return PolicyObjective(loss=ClippedSurrogate())


def snapshot(trainer: TorchBackend, version: int) -> Snapshot:
    """The trainer's weights, sealed."""
    return snapshot_of(version, trainer)
