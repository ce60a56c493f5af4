"""The log probabilities that the engine reports are those that the trainer computes for the same tokens, at the temperature of each.

The two real backends, each on its own copy of one checkpoint, compared with each other: all that a ratio, a KL or ``sampler_gap`` of a run
is made of. ``RLCORE_TEST_DEVICE=cuda`` compares them on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_transformers.engine import TransformersBackend
from rlcore_plugin_transformers.options import TransformersOptions
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rlcore.api import (
    Completion,
    Group,
    InferenceContext,
    ModelRole,
    OptimizerSettings,
    Request,
    Rollout,
    Sampling,
    Score,
    Segment,
    TrainBatch,
    TrainingContext,
)
from rlcore.learning import BatchSettings, ClippedSurrogate, PolicyObjective, assemble_batch, prepare_loss
from rlcore.runtime.sampler_gap import mean_gap_tolerance
from rlcore.testing import ChatTokenizer, snapshot_of, update_engine

DEVICE = os.environ.get("RLCORE_TEST_DEVICE", "cpu")
TOLERANCE = 1e-4
"""Nats, in float32: two ways to sum the same products."""
VOCABULARY, LIMIT = 100, 24
TEMPERATURES = {"low": (0.6,), "high": (1.5,), "mixed": (0.6, 1.0, 1.5)}
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": VOCABULARY - 1,
    "pad_token_id": VOCABULARY - 2,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen2: tied embeddings and biases; Llama: an output head of its own."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "qwen2":
        Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)).save_pretrained(folder)
    else:
        LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False)).save_pretrained(folder)
    return folder


def tokenizer() -> ChatTokenizer:
    words = {f"w{number}": number for number in range(VOCABULARY - 2)} | {"<pad>": VOCABULARY - 2, "<eos>": VOCABULARY - 1}
    made = Tokenizer(models.WordLevel(vocab=words, unk_token="w0"))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>", pad_token="<pad>")
    wrapped.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return ChatTokenizer(wrapped)


def engine(checkpoint: Path, dtype: str = "float32") -> TransformersBackend:
    context = InferenceContext(
        model=str(checkpoint), tokenizer=tokenizer(), prompts_per_forward=2, max_tokens=LIMIT + 20, dtype=dtype, device=DEVICE
    )
    return TransformersBackend(context, TransformersOptions())


def trainer(checkpoint: Path, packing: Any = "auto", dtype: str = "float32") -> TorchBackend:
    context = TrainingContext(
        model=str(checkpoint),
        optimizer=OptimizerSettings(learning_rate=1e-2, total_steps=10),
        rollouts_per_forward=3,
        tokens_per_forward=1000,
        prompts_per_slice=10,
        device=DEVICE,
        dtype=dtype,
    )
    made = TorchBackend(context, TorchOptions(packing=packing))
    made.setup(context)
    return made


def sampled(backend: TransformersBackend, temperatures: Sequence[float], *, seed: int = 0) -> TrainBatch:
    """What the engine draws, three completions for each of three prompts, as the batch that a trainer is given."""
    rng = np.random.default_rng(seed)
    requests = [
        Request(
            request_id=f"{prompt}-{index}",
            token_ids=token_ids,
            sampling=Sampling(temperature=temperatures[(prompt + index) % len(temperatures)], max_new_tokens=LIMIT),
            noise=(seed, 0, prompt, index),
        )
        for prompt, token_ids in enumerate(rng.integers(0, VOCABULARY - 2, length).astype(np.int32) for length in (3, 11, 7))
        for index in range(3)
    ]
    backend.submit(requests)
    finished: dict[str, Completion] = {}
    while completions := backend.poll(60.0):
        finished.update({completion.request_id: completion for completion in completions})
    groups = [group(requests[start : start + 3], finished) for start in range(0, len(requests), 3)]
    advantages = np.tile([1.0, -0.5, 0.25], len(groups))
    return prepare_loss("clipped", ClippedSurrogate(), assemble_batch(groups, advantages, BatchSettings(max_new_tokens=LIMIT)))


def group(requests: Sequence[Request], finished: dict[str, Completion]) -> Group:
    prompt = requests[0].request_id.partition("-")[0]
    rollouts = tuple(rollout(request, finished[request.request_id]) for request in requests)
    scores = tuple(Score(value=float(index)) for index in range(len(rollouts)))
    return Group(prompt_id=prompt, episode=0, prompt_index=int(prompt), rollouts=rollouts, scores=scores)


def rollout(request: Request, completion: Completion) -> Rollout:
    segment = Segment(
        context_ids=request.token_ids,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        versions=completion.versions,
        policy_mask=np.ones(len(completion.token_ids), np.bool_),
    )
    prompt, _, index = request.request_id.partition("-")
    return Rollout(
        prompt_id=prompt,
        index=int(index),
        segments=(segment,),
        text="",
        finish=completion.finish,
        temperature=request.sampling.temperature,
    )


def gap(backend: TorchBackend, batch: TrainBatch) -> float:
    """The largest difference between the sampler's and the trainer's log probability of a token."""
    return float(np.abs(backend.logprobs(batch, ModelRole.POLICY) - batch.rollout_logprobs).max())


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize("temperatures", TEMPERATURES)
def test_engine_and_trainer_agree_at_any_temperature(checkpoint: Path, temperatures: str, packing: str) -> None:
    batch, backend = sampled(engine(checkpoint), TEMPERATURES[temperatures]), trainer(checkpoint, packing)
    assert batch.offsets[-1] > 60, "too few tokens to tell"
    assert gap(backend, batch) < TOLERANCE
    at_one = tuple(replace(rollout, temperature=1.0) for rollout in batch.rollouts)
    assert gap(backend, replace(batch, rollouts=at_one)) > 1000 * TOLERANCE, "the test could not tell the temperatures apart"


def test_engine_and_trainer_agree_after_the_trainers_update_has_reached_the_engine(checkpoint: Path) -> None:
    sampler, backend = engine(checkpoint), trainer(checkpoint)
    first = sampled(sampler, TEMPERATURES["mixed"])
    metrics = backend.update(first, PolicyObjective(loss=ClippedSurrogate()))
    assert metrics["sampler_gap"] < TOLERANCE
    assert update_engine(sampler, snapshot_of(1, backend)) == 1
    assert gap(backend, first) > 100 * TOLERANCE, "the update moved nothing"
    second = sampled(sampler, TEMPERATURES["mixed"], seed=1)
    assert all((segment.versions == 1).all() for rollout in second.rollouts for segment in rollout.segments)
    assert gap(backend, second) < TOLERANCE


@pytest.mark.parametrize("temperatures", TEMPERATURES)
def test_a_ratio_to_the_sampler_is_one_on_fresh_data(checkpoint: Path, temperatures: str) -> None:
    """What ``old_logprobs = "rollout"`` and every mismatch correction rest on."""
    batch, backend = sampled(engine(checkpoint), TEMPERATURES[temperatures]), trainer(checkpoint)
    metrics = backend.update(replace(batch, old_logprobs=batch.rollout_logprobs), PolicyObjective(loss=ClippedSurrogate()))
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=TOLERANCE)
    assert metrics["loss/clip_fraction"] == 0.0


def test_they_declare_one_implementation() -> None:
    """ModelRole float32 keeps, by the tests above, and bfloat16 does not, by the next."""
    assert TransformersBackend.capabilities.implementation == TorchBackend.capabilities.implementation == "transformers"


@pytest.mark.parametrize(("sampler", "learner"), [("bfloat16", "float32"), ("float32", "bfloat16"), ("bfloat16", "bfloat16")])
def test_in_bfloat16_they_differ_by_more_than_rounding_in_float32(checkpoint: Path, sampler: str, learner: str) -> None:
    """Why one implementation needs no correction in float32 alone; and within what a run takes for usual."""
    batch, backend = sampled(engine(checkpoint, sampler), (1.0,)), trainer(checkpoint, dtype=learner)
    told = np.abs(backend.logprobs(batch, ModelRole.POLICY) - batch.rollout_logprobs)
    assert 10 * TOLERANCE < told.mean() < mean_gap_tolerance(sampler, learner)
    assert (np.exp(told) < 2.0).all(), "a few hundredths, of dense models: the range of truncated is for what lies beyond"
