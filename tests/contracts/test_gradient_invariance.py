"""Promise 2: the gradient does not depend on how the work was cut. A real tiny Qwen2 in float64, every registered loss."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.passes import Clock, MicrobatchPlanner, accumulate, batch_logprobs, with_padding_share
from rlcore_plugin_torch.policy import CausalPolicy
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import FinishReason, Group, Loss, PluginKind, Rollout, RunError, Score, Segment, TrainBatch
from rlcore.learning import BatchSettings, PolicyObjective, assemble_batch, prepare_loss, split
from rlcore.registry.plugin_registry import Registry
from rlcore.testing.algorithms.fake_algorithms import AGGREGATIONS

VOCABULARY = 100
REGISTRY = Registry.discover()
LOSSES = REGISTRY.names(PluginKind.LOSS)
WHOLE = MicrobatchPlanner(rollouts=10_000, tokens=10_000_000, prompts=10_000)
CUTS = {
    "one": MicrobatchPlanner(rollouts=1, tokens=10_000, prompts=10_000),
    "three": MicrobatchPlanner(rollouts=3, tokens=10_000, prompts=10_000),
    "tokens": MicrobatchPlanner(rollouts=100, tokens=45, prompts=10_000),
    "slices": MicrobatchPlanner(rollouts=100, tokens=10_000, prompts=1),
    "packed": MicrobatchPlanner(rollouts=100, tokens=10_000, prompts=10_000, packed=True),
    "packed_pieces": MicrobatchPlanner(rollouts=3, tokens=60, prompts=2, packed=True),
}


@pytest.fixture(scope="module")
def policy() -> CausalPolicy:
    return exact_policy()


def exact_policy(layers: int = 1) -> CausalPolicy:
    policy = CausalPolicy(model=exact_model(layers), chunk=7)
    assert policy.try_packing() == ""
    return policy


def exact_model(layers: int) -> Qwen2ForCausalLM:
    """Float64 throughout: the norm of transformers rounds to float32, so torch's takes its place (same function)."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    model = Qwen2ForCausalLM(config).double().eval()
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "Qwen2RMSNorm":
            exact = torch.nn.RMSNorm(64, eps=config.rms_norm_eps, dtype=torch.float64)
            exact.weight.data.uniform_(0.5, 1.5)
            model.set_submodule(name, exact)
    return model


def make_groups(seed: int = 0) -> list[Group]:
    rng = np.random.default_rng(seed)
    return [make_group(rng, number) for number in range(5)]


def make_group(rng: np.random.Generator, number: int) -> Group:
    size, context = int(rng.integers(2, 6)), rng.integers(0, VOCABULARY, int(rng.integers(3, 12)))
    rollouts = tuple(make_rollout(rng, number, index, context) for index in range(size))
    scores = [Score(value=float(rng.normal())) for _ in range(size)]
    if number == 1:
        scores[0] = replace(scores[0], in_loss=False)
    return Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=rollouts, scores=tuple(scores))


def make_rollout(rng: np.random.Generator, number: int, index: int, context: np.ndarray) -> Rollout:
    segments = [make_segment(rng, context, forced=index == 1)]
    temperature = 0.8 if number < 3 else 1.0  # as where a batch holds groups of two policy versions, annealed
    if number == 2 and index == 0:
        past = np.concatenate([context, segments[0].token_ids, rng.integers(0, VOCABULARY, 3)])
        segments.append(make_segment(rng, past, forced=False))
    return Rollout(
        prompt_id=f"p{number}", index=index, segments=tuple(segments), text="", finish=FinishReason.STOP, temperature=temperature
    )


def make_segment(rng: np.random.Generator, context: np.ndarray, forced: bool) -> Segment:
    length = int(rng.integers(1, 13))
    mask = rng.random(length) < 0.6 if forced else np.ones(length, np.bool_)
    return Segment(
        context_ids=context,
        token_ids=rng.integers(0, VOCABULARY, length),
        logprobs=np.zeros(length),
        versions=np.zeros(length),
        policy_mask=mask,
    )


def make_batch(policy: CausalPolicy, settings: BatchSettings, loss: Loss) -> TrainBatch:
    """Old log probabilities near the policy's, off by enough that ratios leave the clip range; the reference further off."""
    groups = make_groups()
    batch = assemble_batch(groups, None, settings)
    rng = np.random.default_rng(1)
    own = batch_logprobs(policy, batch, WHOLE)
    noise = rng.normal(0, 0.4, (3, len(own))).astype(np.float32)
    batch = replace(
        batch,
        advantages=np.repeat(rng.normal(size=len(batch)), batch.lengths).astype(np.float32),
        rollout_logprobs=own + noise[0],
        old_logprobs=own + noise[0],
        reference_logprobs=own + noise[2],
    )
    return prepare_loss("loss", loss, batch)


def make_loss(name: str) -> Loss:
    options = REGISTRY.options_model(PluginKind.LOSS, name)
    target = REGISTRY.load(PluginKind.LOSS, name)
    return target(options()) if options is not None else target()


def make_objective(name: str) -> PolicyObjective:
    return PolicyObjective(loss=make_loss(name), name=name, kl_coeff=0.05, entropy_coeff=0.01, skip_threshold=2.0)


def gradient(
    policy: CausalPolicy, batches: list[TrainBatch], objective: PolicyObjective, cut: MicrobatchPlanner
) -> tuple[torch.Tensor, dict[str, float]]:
    """Flat gradient and metrics, summed over the given shares of one optimizer step."""
    policy.model.zero_grad(set_to_none=True)
    totals: dict[str, float] = {}
    for batch in batches:
        for key, value in accumulate(policy, batch, objective, cut, Clock()).items():
            totals[key] = totals.get(key, 0.0) + value
    totals = with_padding_share(totals)
    if cut.packed:
        assert totals.pop("padding_share") == 0
    totals.pop("padding_share", None)
    return torch.cat([parameter.grad.flatten() for parameter in policy.model.parameters()]), totals


def assert_same(result: tuple[torch.Tensor, dict[str, float]], whole: tuple[torch.Tensor, dict[str, float]]) -> None:
    assert float((result[0] - whole[0]).norm() / whole[0].norm()) < 1e-10
    assert result[1] == pytest.approx(whole[1], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("variation", list(AGGREGATIONS))
@pytest.mark.parametrize("name", LOSSES)
def test_gradient_and_metrics_do_not_depend_on_the_cut(policy: CausalPolicy, name: str, variation: str) -> None:
    settings = BatchSettings(max_new_tokens=16, variation=AGGREGATIONS[variation])
    objective = make_objective(name)
    batch = make_batch(policy, settings, objective.loss)
    steps = split(batch, settings, updates=2)
    assert len(steps) == 2
    few = [dict(itertools.islice(CUTS.items(), first, None, 2)) for first in (0, 1)]  # every cut of one of the steps, and all of the batch
    for step, cuts in zip([batch, *steps], [CUTS, *few], strict=True):
        whole = gradient(policy, [step], objective, WHOLE)
        assert float(whole[0].norm()) > 1e-3
        assert whole[1]["skipped_rollouts"] > 0 or step is not batch
        for cut in cuts.values():
            assert_same(gradient(policy, [step], objective, cut), whole)


def test_the_clip_acts_in_what_the_others_compare(policy: CausalPolicy) -> None:
    objective = make_objective("clipped")
    batch = make_batch(policy, BatchSettings(max_new_tokens=16), objective.loss)
    metrics = gradient(policy, [batch], objective, WHOLE)[1]
    assert 0.05 < metrics["loss/clip_fraction"] < 0.95
    assert metrics["kl_reference"] > 0.01


@pytest.mark.parametrize("name", LOSSES)
def test_segments_of_a_rollout_may_be_in_different_forwards(policy: CausalPolicy, name: str) -> None:
    """Unless the loss combines the tokens of a rollout: then it refuses segments."""
    objective = replace(make_objective(name), skip_threshold=None)
    batch = make_batch(policy, BatchSettings(max_new_tokens=16), objective.loss)
    apart = batch.by_segment()
    assert len(apart) > len(batch)
    if objective.whole_rollouts:
        with pytest.raises(RunError, match="declares whole_rollouts = True"):
            gradient(policy, [apart], objective, CUTS["one"])
        return
    whole = gradient(policy, [batch], objective, WHOLE)
    for cut in (CUTS["one"], CUTS["tokens"], CUTS["packed_pieces"]):
        assert_same(gradient(policy, [apart], objective, cut), whole)
        assert np.array_equal(batch_logprobs(policy, apart, cut).round(5), batch_logprobs(policy, batch, cut).round(5))


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_the_sum_over_ranks(policy: CausalPolicy, name: str) -> None:
    settings = BatchSettings(max_new_tokens=16)
    objective = make_objective(name)
    batch = make_batch(policy, settings, objective.loss)
    whole = gradient(policy, [batch], objective, WHOLE)
    for ranks in (2, 3):
        shares = [batch.take(np.flatnonzero(np.arange(len(batch)) % ranks == rank)) for rank in range(ranks)]
        assert_same(gradient(policy, shares, objective, CUTS["three"]), whole)


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_does_not_depend_on_the_order_of_rollouts(policy: CausalPolicy, name: str) -> None:
    settings = BatchSettings(max_new_tokens=16)
    objective = make_objective(name)
    batch = make_batch(policy, settings, objective.loss)
    shuffled = batch.take(np.random.default_rng(5).permutation(len(batch)))
    for cut in (WHOLE, CUTS["packed"]):
        assert_same(gradient(policy, [shuffled], objective, cut), gradient(policy, [batch], objective, WHOLE))


def test_forced_tokens_and_rollouts_outside_the_loss_carry_no_gradient(policy: CausalPolicy) -> None:
    """Raising every old log probability outside the loss changes nothing; a forced token has no place on the flat axis at all."""
    settings = BatchSettings(max_new_tokens=16)
    objective = make_objective("clipped")
    batch = make_batch(policy, settings, objective.loss)
    outside = np.repeat(~batch.in_loss, batch.lengths)
    assert outside.any()
    moved = replace(batch, advantages=np.where(outside, 99.0, batch.advantages).astype(np.float32))
    assert_same(gradient(policy, [moved], objective, WHOLE), gradient(policy, [batch], objective, WHOLE))
    forced = sum(int((~segment.policy_mask).sum()) for rollout in batch.rollouts for segment in rollout.segments)
    sampled = sum(len(segment.token_ids) for rollout in batch.rollouts for segment in rollout.segments) - forced
    assert forced > 0
    assert len(batch.advantages) == sampled


def test_two_updates_on_one_batch_end_in_the_same_weights() -> None:
    """Two optimizer steps, ratios away from 1 in the second, in one piece and in the smallest pieces."""
    settings = BatchSettings(max_new_tokens=16, variation=AGGREGATIONS["token_level"])
    objective = PolicyObjective(loss=make_loss("clipped"), kl_coeff=0.05)
    ends = []
    for cut in (WHOLE, CUTS["one"], CUTS["packed_pieces"]):
        policy = exact_policy(layers=2)  # the losses above see the same cuts with one, at half the price
        batch = make_batch(policy, settings, objective.loss)
        for step in split(batch, settings, updates=2):
            gradient(policy, [step], objective, cut)
            with torch.no_grad():
                for parameter in policy.model.parameters():
                    parameter -= 0.02 * parameter.grad
        ends.append(torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()]))
    for end in ends[1:]:
        assert float((end - ends[0]).norm() / ends[0].norm()) < 1e-10
