"""What the policy did not write trains nothing and counts nowhere: gradients of the torch backend, and every place that takes a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.backend import TorchBackend
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import (
    AdvantageEstimator,
    FinishReason,
    Group,
    OptimizerSettings,
    PluginKind,
    Rollout,
    Score,
    Segment,
    TrainBatch,
    TrainingContext,
)
from rlcore.contracts.types import RolloutKind
from rlcore.learning import (
    BatchSettings,
    PolicyObjective,
    SoftOverlong,
    assemble_batch,
    assemble_rewards,
    collate,
    run_estimator,
)
from rlcore.learning.losses import ClippedOptions, ClippedSurrogate
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime.batch_report import Batch, batch_figures
from rlcore.testing.algorithms.fake_algorithms import AGGREGATIONS

VOCABULARY, LIMIT = 40, 16
REGISTRY = Registry.discover()
MANY = 10_000


# --- gradients -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> TorchBackend:
    folder = tmp_path_factory.mktemp("qwen")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    context = TrainingContext(
        model=str(folder),
        optimizer=OptimizerSettings(learning_rate=1e-9),
        rollouts_per_forward=MANY,
        tokens_per_forward=MANY,
        prompts_per_slice=MANY,
        device="cpu",
    )
    made = TorchBackend(context)
    made.setup(context)
    return made


def two_turns(index: int, told: Sequence[int], *, tail: Sequence[int] = (), logprob: float = 0.0, masked: bool = True) -> Rollout:
    """Prompt, answer, what the policy is told, answer, and what it is told at the end (``tail``)."""
    rng = np.random.default_rng(index)
    first, second = rng.integers(0, VOCABULARY, 3).tolist(), rng.integers(0, VOCABULARY, 4).tolist()
    policy = np.array([True] * 3 + [not masked] * len(told) + [True] * 4 + [not masked] * len(tail))
    ids = np.array([*first, *told, *second, *tail])
    segment = Segment(
        context_ids=np.array([1, 2, 3]),
        token_ids=ids,
        logprobs=np.where(policy, -1.0 - np.arange(len(ids)) / 10, logprob),
        versions=np.zeros(len(ids)),
        policy_mask=policy,
    )
    return Rollout(prompt_id="p", index=index, segments=(segment,), text="", finish=FinishReason.STOP)


def in_two_segments(rollout: Rollout, told: int) -> Rollout:
    """The same tokens, each answer behind its own context."""
    (whole,) = rollout.segments
    parts = []
    for start, end in ((0, 3), (3 + told, 7 + told)):
        values = {name: getattr(whole, name)[start:end] for name in ("token_ids", "logprobs", "versions", "policy_mask")}
        parts.append(Segment(context_ids=np.concatenate([whole.context_ids, whole.token_ids[:start]]), **values))
    return replace(rollout, segments=tuple(parts))


def make_batch(rollouts: Sequence[Rollout], variation: str = "token_level") -> TrainBatch:
    group = Group(prompt_id="p", episode=0, prompt_index=0, rollouts=tuple(rollouts), scores=(Score(value=0.0),) * len(rollouts))
    settings = BatchSettings(max_new_tokens=LIMIT, variation=AGGREGATIONS[variation])
    return assemble_batch([group], np.linspace(-1.0, 1.5, len(rollouts)), settings)


def gradient(backend: TorchBackend, batch: TrainBatch) -> torch.Tensor:
    """The flat gradient of one step, before clipping, as the backend hands it to its optimizer."""
    objective = PolicyObjective(loss=ClippedSurrogate(ClippedOptions()), kl_coeff=0.0, entropy_coeff=0.02)
    caught: list[torch.Tensor] = []

    def keep() -> dict[str, float]:
        caught.append(torch.cat([parameter.grad.flatten() for parameter in backend.optimizer.parameters]))
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend.optimizer, "step", keep)
        backend.update(batch, objective)
    return caught[0].clone()


def test_what_stands_behind_the_last_answer_has_no_gradient_whatever_it_is(backend: TorchBackend) -> None:
    told = [7, 8]
    plain = gradient(backend, make_batch([two_turns(index, told) for index in range(3)]))
    assert float(plain.norm()) > 1e-3
    for tail in ([9, 9, 9], [11, 30, 2, 5]):
        same = gradient(backend, make_batch([two_turns(index, told, tail=tail) for index in range(3)]))
        assert float((same - plain).norm()) <= 1e-5 * float(plain.norm())


def test_log_probabilities_of_what_it_was_told_mean_nothing(backend: TorchBackend) -> None:
    plain, other = (make_batch([two_turns(index, [7, 8], logprob=logprob) for index in range(3)]) for logprob in (0.0, -9.0))
    assert np.array_equal(plain.rollout_logprobs, other.rollout_logprobs)
    assert torch.equal(gradient(backend, plain), gradient(backend, other))


def test_a_target_between_the_answers_has_no_gradient(backend: TorchBackend) -> None:
    """One segment with a mask, and two without: the same answers behind the same tokens, and no other token to predict."""
    rollouts = [two_turns(index, [7, 8, 9]) for index in range(3)]
    masked = gradient(backend, make_batch(rollouts))
    apart = gradient(backend, make_batch([in_two_segments(rollout, 3) for rollout in rollouts]))
    assert float((masked - apart).norm()) <= 1e-5 * float(apart.norm())
    unmasked = gradient(backend, make_batch([two_turns(index, [7, 8, 9], masked=False) for index in range(3)]))
    assert float((unmasked - apart).norm()) > 0.1 * float(apart.norm())  # the comparison sees a missing mask


def test_the_batch_holds_policy_tokens_alone_and_predicts_no_other() -> None:
    rollouts = [two_turns(index, [7, 8], tail=[9]) for index in range(2)]
    batch = make_batch(rollouts)
    assert batch.lengths.tolist() == [7, 7]
    assert len(batch.advantages) == len(batch.weights) == len(batch.rollout_logprobs) == 14
    micro = collate(batch, np.arange(2))
    wanted = np.concatenate([rollout.segments[0].token_ids[rollout.segments[0].policy_mask] for rollout in rollouts])
    assert micro.targets.tolist() == wanted.tolist()
    width = micro.input_ids.shape[1]
    predicted = micro.input_ids.flatten()[micro.select + 1]
    assert predicted.tolist() == wanted.tolist()
    assert sorted(set((micro.select % width).tolist())) == [2, 3, 4, 7, 8, 9, 10]  # places before the answers' tokens


# --- lengths -------------------------------------------------------------------------------------------------------------


def groups(told: int) -> list[Group]:
    """Two groups of ragged rollouts. Every answer is in two parts, with so many tokens of somebody else between and behind them."""
    made = []
    for number, lengths in enumerate(([4, 6, 15, 8], [2, 12, 5])):
        rollouts = tuple(spread(number, index, length, told) for index, length in enumerate(lengths))
        greedy = replace(spread(number, len(lengths), 13, told), kind=RolloutKind.GREEDY, temperature=0.0)
        scores = tuple(Score(value=float((index * 7 + number) % 3), accuracy=float(index % 2)) for index in range(len(lengths) + 1))
        made.append(Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=(*rollouts, greedy), scores=scores))
    return made


def spread(number: int, index: int, length: int, told: int) -> Rollout:
    half = length // 2
    mask = np.array([True] * half + [False] * told + [True] * (length - half) + [False] * told)
    logprobs = np.zeros(len(mask))
    logprobs[mask] = -np.linspace(0.1, 2.0, length)
    versions = np.full(len(mask), -5)  # of what nobody sampled: they must not make the group old
    versions[mask] = 3
    segment = Segment(context_ids=[1, 2], token_ids=np.arange(len(mask)), logprobs=logprobs, versions=versions, policy_mask=mask)
    finish = FinishReason.LENGTH if length == 15 else FinishReason.STOP
    return Rollout(prompt_id=f"p{number}", index=index, segments=(segment,), text="", finish=finish)


OVERLONG = SoftOverlong(max_new_tokens=LIMIT, cache_length=6)


@pytest.mark.parametrize("variation", list(AGGREGATIONS))
def test_weights_and_normalisers_count_what_the_policy_wrote(variation: str) -> None:
    settings = BatchSettings(max_new_tokens=LIMIT, variation=AGGREGATIONS[variation])
    bare, told = (assemble_batch(groups(count), None, settings) for count in (0, 9))
    assert told.normalisers == bare.normalisers
    assert told.normalisers.tokens == sum([4, 6, 15, 8, 2, 12, 5])
    assert np.array_equal(told.weights, bare.weights)
    assert np.array_equal(told.rollout_logprobs, bare.rollout_logprobs)


def test_the_punishment_of_length_counts_what_the_policy_wrote() -> None:
    settings = BatchSettings(max_new_tokens=LIMIT, overlong=OVERLONG)
    bare, told = (assemble_rewards(groups(count), settings, with_greedy=True) for count in (0, 9))
    assert np.array_equal(told.lengths, bare.lengths)
    assert np.array_equal(told.rewards, bare.rewards)
    assert bare.greedy is not None
    assert told.greedy is not None
    assert np.array_equal(told.greedy, bare.greedy)
    raw = assemble_rewards(groups(9), BatchSettings(max_new_tokens=LIMIT)).rewards
    assert (told.rewards < raw).tolist() == [False, False, True, False, False, True, False]  # 15, cut, and 12; never 4 + 2 x 9


def make_estimator(name: str) -> AdvantageEstimator:
    options = REGISTRY.options_model(PluginKind.ESTIMATOR, name)
    made: AdvantageEstimator = REGISTRY.make(PluginKind.ESTIMATOR, name, options=None if options is None else options())
    return made


@pytest.mark.parametrize("name", REGISTRY.names(PluginKind.ESTIMATOR))
def test_an_estimator_sees_what_the_policy_wrote(name: str) -> None:
    settings = BatchSettings(max_new_tokens=LIMIT)
    estimator = make_estimator(name)
    values = []
    for count in (0, 9):
        tokens = sum([4, 6, 15, 8, 2, 12, 5])
        given: dict[str, Any] = {"kl": np.linspace(0, 0.3, tokens), "kl_coeff": 0.1} if estimator.accepts_kl else {}
        rewards = assemble_rewards(groups(count), settings, with_greedy=estimator.needs_greedy, **given)
        values.append(run_estimator(name, estimator, rewards))
    assert np.array_equal(values[0], values[1])
    assert values[0].any()


def test_figures_count_what_the_policy_wrote() -> None:
    bare, told = (batch_figures(Batch(groups=tuple(groups(count)), masked=frozenset(), version=4, filtering={})) for count in (0, 9))
    assert told == bare
    assert (told["response_length/max"], told["response_tokens"], told["staleness/max"]) == (15.0, 52.0, 1.0)


def test_a_rollout_is_as_old_as_what_the_policy_wrote(tmp_path: Path) -> None:
    assert spread(0, 0, 4, 9).version == 3
    (segment,) = spread(0, 0, 4, 9).segments
    nothing = replace(segment, policy_mask=np.zeros(len(segment.token_ids), np.bool_))
    assert replace(spread(0, 0, 4, 9), segments=(nothing,)).version is None
