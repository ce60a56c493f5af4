from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rlcore_plugin_dapo import rlcore_register_algorithms

from rlcore.api import FinishReason, Group, LossBatch, PluginKind, Rollout, Score, Segment, TrainBatch
from rlcore.learning import BatchSettings, PolicyObjective, SoftOverlong, assemble_batch, assemble_rewards, run_estimator
from rlcore.testing import Registry, RunTester

(SPEC,) = rlcore_register_algorithms()
DEFAULTS = {path.removeprefix("algorithm."): value for path, (value, _) in SPEC.defaults.items()}


def test_every_default_has_a_source_and_is_in_the_readme() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for path, (value, source) in SPEC.defaults.items():
        assert source
        assert str(value) in readme
        assert path.split(".")[-1] in readme


def test_the_defaults_are_those_of_the_reference() -> None:
    assert DEFAULTS == {
        "options.clip_eps_low": 0.2,
        "options.clip_eps_high": 0.28,
        "loss_variation": "token_level",
        "kl_coeff": 0.0,
        "filter_by": "accuracy",
        "filter_range": (0.01, 0.99),
        "dynamic_batching": True,
        "soft_over_length_punishment": True,
        "filter_truncated_response": True,
        "skip_threshold": 20.0,
    }


def test_show_in_any_case(tmp_path: Path) -> None:
    shown = RunTester(tmp_path, in_process=True).run("show", "algo", "DAPO").assert_ok().stdout
    assert "clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high)" in shown
    assert "recipe dapo: DAPO (arXiv 2503.14476), section 3.3, equation 12" in shown


def rollout(index: int, length: int, finish: FinishReason) -> Rollout:
    segment = Segment(
        context_ids=[1],
        token_ids=np.arange(length),
        logprobs=-np.ones(length),
        versions=np.zeros(length),
        policy_mask=np.ones(length),
    )
    return Rollout(prompt_id="p", index=index, segments=(segment,), text="", finish=finish)


def whole_batch() -> tuple[TrainBatch, PolicyObjective]:
    """Limit 8, the last 4 tokens punished, a right answer worth 1. Lengths 2, 6 and 8; the last was cut."""
    finishes = [FinishReason.STOP, FinishReason.STOP, FinishReason.LENGTH]
    rollouts = tuple(rollout(index, length, finish) for index, (length, finish) in enumerate(zip([2, 6, 8], finishes, strict=True)))
    scores = (Score(value=1.0), Score(value=1.0), Score(value=0.0))
    groups = [Group(prompt_id="p", episode=0, prompt_index=0, rollouts=rollouts, scores=scores)]
    registry = Registry.discover()
    settings = BatchSettings(
        max_new_tokens=8,
        variation=registry.load(PluginKind.AGGREGATION, DEFAULTS["loss_variation"])(),
        filter_truncated=DEFAULTS["filter_truncated_response"],
        overlong=SoftOverlong(max_new_tokens=8, cache_length=4),
    )
    estimator = registry.load(PluginKind.ESTIMATOR, SPEC.estimator)()
    batch = assemble_batch(groups, run_estimator(SPEC.estimator, estimator, assemble_rewards(groups, settings)), settings)
    options = registry.options_model(PluginKind.LOSS, SPEC.loss)
    assert options is not None
    loss = registry.load(PluginKind.LOSS, SPEC.loss)(options(clip_eps_low=0.2, clip_eps_high=0.28))
    return batch, PolicyObjective(loss=loss, kl_coeff=DEFAULTS["kl_coeff"], skip_threshold=DEFAULTS["skip_threshold"])


def advantages() -> list[float]:
    """Rewards less the punishment: 1, 1 + (8 - 4 - 6) / 4 = 0.5, 0 - 1; the cut response moves mean and deviation."""
    rewards = [1.0, 0.5, -1.0]
    mean = math.fsum(rewards) / 3
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / 2)
    return [(reward - mean) / (std + 1e-4) for reward in rewards]


def test_punishment_and_truncation_by_hand() -> None:
    batch, _ = whole_batch()
    assert batch.in_loss.tolist() == [True, True, False]
    assert [float(batch.advantages[start]) for start in batch.offsets[:-1]] == pytest.approx(advantages(), rel=1e-6)
    assert batch.weights.tolist() == pytest.approx([1 / 8] * 8 + [0.0] * 8)


def seen_by_the_loss(batch: TrainBatch) -> LossBatch:
    trained = int(batch.offsets[2])
    old = torch.full((trained,), -1.0, dtype=torch.float64)
    return LossBatch(
        row=torch.tensor([0] * 2 + [1] * 6),
        lengths=torch.tensor([2, 6]),
        advantages=torch.from_numpy(batch.advantages[:trained].astype(np.float64)),
        old_logprobs=old,
        rollout_logprobs=old,
        weights=torch.from_numpy(batch.weights[:trained].astype(np.float64)),
    )


def test_token_mean_and_clip_higher_by_hand() -> None:
    """Ratios 1.3 (beyond the upper bound), 1.25 (within it, and beyond GRPO's), and 0.7 for the rest of two good rollouts."""
    batch, objective = whole_batch()
    ratios = [1.3, 1.25] + [0.7] * 6
    logprobs = torch.tensor([math.log(ratio) - 1.0 for ratio in ratios], dtype=torch.float64, requires_grad=True)
    total, metrics = objective(logprobs, seen_by_the_loss(batch))
    total.backward()
    first, second, _ = advantages()
    assert float(total.detach()) == pytest.approx(-(1.28 * first + 1.25 * first + 6 * 0.7 * second) / 8, rel=1e-6)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, -1.25 * first / 8] + [-0.7 * second / 8] * 6, rel=1e-6)
    assert float(metrics["skipped_rollouts"]) == 0.0


def test_a_ratio_above_twenty_leaves_its_rollout_out_and_keeps_the_denominator() -> None:
    batch, objective = whole_batch()
    ratios = [20.1, 1.0] + [1.0] * 6
    logprobs = torch.tensor([math.log(ratio) - 1.0 for ratio in ratios], dtype=torch.float64, requires_grad=True)
    total, metrics = objective(logprobs, seen_by_the_loss(batch))
    total.backward()
    second = advantages()[1]
    assert float(total.detach()) == pytest.approx(-6 * second / 8, rel=1e-6)
    assert logprobs.grad is not None
    assert logprobs.grad[:2].tolist() == [0.0, 0.0]
    assert float(metrics["skipped_rollouts"]) == 1.0


def test_filtered_groups_are_replaced_until_the_batch_is_full(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    run = tester.fake_run(
        run={"num_episodes": 20, "max_steps": 4},
        training={"name": "fake-pipeline", "learning_rate": 0.2},
        algorithm={"name": "DAPO"},
        sampling={"num_generations": 12, "max_new_tokens": 4},
    )
    done = tester.run("train", run, "--json").assert_ok().json
    lines = (tmp_path / done["run"] / "metrics.jsonl").read_text().splitlines()
    steps = [record for record in map(json.loads, lines) if "groups" in record]
    assert done["ledger"]["filtered"] > 0
    assert done["ledger"]["trained"] == 12
    assert [(record["groups"], record["groups/masked"]) for record in steps] == [(3.0, 0.0)] * 4
    assert all(0.0 < record["reward/accuracy"] < 1.0 for record in steps)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--filter-range", "0.99", "0.01"], ["lets no group pass"]),
        (["--filter-range", "none"], ["dynamic_batching"]),
        (["--cache-length", "8"], ["is not below"]),
        (["--clip-eps-low", "0"], ["clip_eps_low"]),
    ],
)
def test_contradictions_are_refused_in_one_sentence(tmp_path: Path, flags: list[str], words: list[str]) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    run = tester.fake_run(algorithm={"name": "dapo"}, sampling={"max_new_tokens": 8})
    tester.run("train", run, *flags).assert_refused(*words)
