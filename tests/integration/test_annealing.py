"""A run whose temperature falls: what was sampled is trained at the temperature it was sampled at, on policy and off.

The trainer is the fake pipeline, because it calls the objective, which reports how far trainer and sampler are apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import InferenceContext, ModelRole, OptimizerSettings, TrainingBackend, TrainingContext
from rlcore.contracts.lease import Lease
from rlcore.contracts.types import Message, Prompt, Sampling, Score
from rlcore.learning import BatchSettings, assemble_batch
from rlcore.roles.producer import Producer
from rlcore.roles.single_turn import SingleTurn
from rlcore.runtime.factories import AnnealedSampling, JobMaker, SourceJobs
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeInference, FakeInferenceOptions, FakeTokenizer, FakeTraining, RunOutcome, RunTester, write_fake_model
from rlcore.testing.training.fake_pipeline import FakePipeline

LETTERS = "abcdef"
UPDATES = 21
FALLING = ["--temperature", "1.2", "--temperature-end", "0.8"]


def project(tmp_path: Path, learning_rate: float, staleness: int = 0) -> tuple[RunTester, str]:
    """Logits wide enough that a temperature 0.02 off is seen."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run(
        run={"num_episodes": 50, "max_steps": UPDATES},
        training={"name": "fake-pipeline", "learning_rate": learning_rate},
        schedule={"max_staleness": staleness},
        log={"rollout_interval": 1},
    )
    write_fake_model(tmp_path / "model", LETTERS, scale=1.0)
    return tester, config


def metrics_of(tester: RunTester, done: RunOutcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()]


def rollouts_of(tester: RunTester, done: RunOutcome, step: int) -> list[dict[str, Any]]:
    return list(RunRecord(tester.folder / done.json["run"]).rollouts(step))


def weights_of(tester: RunTester, done: RunOutcome) -> bytes:
    return (tester.folder / done.json["checkpoint"] / "model" / "fake_policy.npz").read_bytes()


def test_a_falling_temperature_is_recorded_and_the_run_learns(tmp_path: Path) -> None:
    tester, config = project(tmp_path, learning_rate=0.4)
    done = tester.run("train", config, "--json", *FALLING).assert_ok()
    records = metrics_of(tester, done)
    assert [record["temperature"] for record in records] == pytest.approx([1.2 - 0.02 * version for version in range(UPDATES)])
    assert max(record["sampler_gap"] for record in records) < 1e-5
    rewards = [record["reward/mean"] for record in records]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.2
    assert {row["temperature"] for row in rollouts_of(tester, done, UPDATES)} == {0.8}


def test_on_policy_it_is_reproducible_and_the_end_matters(tmp_path: Path) -> None:
    tester, config = project(tmp_path, learning_rate=0.1)
    falling, again = (tester.run("train", config, "--json", *FALLING).assert_ok() for _ in range(2))
    constant = tester.run("train", config, "--json", "--temperature", "1.2").assert_ok()
    flat = tester.run("train", config, "--json", "--temperature", "1.2", "--temperature-end", "1.2").assert_ok()
    assert weights_of(tester, falling) == weights_of(tester, again)
    assert weights_of(tester, falling) != weights_of(tester, constant)
    assert weights_of(tester, flat) == weights_of(tester, constant)


def test_off_policy_trainer_and_sampler_agree(tmp_path: Path) -> None:
    """Weights that hardly move, so that what is left of the gap is the temperature's: one step of it (0.02) off is 0.009 or more.

    Two prompts in flight for three in a batch, so that a batch may hold the leases of two versions.
    """
    tester, config = project(tmp_path, learning_rate=1e-6, staleness=2)
    done = tester.run("train", config, "--json", "-ibs", "2", *FALLING).assert_ok()
    records = metrics_of(tester, done)
    assert max(record["sampler_gap"] for record in records) < 5e-4
    means = [record["temperature"] for record in records]
    assert means[0] == pytest.approx(1.2)
    assert means[-1] < 0.9
    for step in range(1, UPDATES + 1):
        versions = [round((1.2 - row["temperature"]) / 0.02) for row in rollouts_of(tester, done, step)]
        assert all(max(0, step - 3) <= version <= step - 1 for version in versions), f"step {step} trained on leases of {versions}"


def test_a_batch_of_two_temperatures_is_scored_as_it_was_sampled(tmp_path: Path) -> None:
    """Leases of two versions, as at any staleness, in one batch; both fake trainers against the sampler's own log probabilities."""
    batch = batch_of_leases(tmp_path, versions=(3, 0, 20, 3))
    assert sorted(set(batch.temperatures)) == pytest.approx([0.8, 1.14, 1.2])
    optimizer = OptimizerSettings(learning_rate=0.1)
    for backend in (FakePipeline(), FakeTraining()):
        for rollouts in (1, 3, 64):
            context = TrainingContext(
                model=str(tmp_path), optimizer=optimizer, rollouts_per_forward=rollouts, tokens_per_forward=999, prompts_per_slice=9
            )
            assert largest_gap(backend, context, batch) < 1e-5


def largest_gap(backend: TrainingBackend, context: TrainingContext, batch: TrainBatch) -> float:
    backend.setup(context)
    return float(np.abs(backend.logprobs(batch, ModelRole.POLICY) - batch.rollout_logprobs).max())


class Silent:
    """A judge to whom everything is right."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, tuple[Score, ...]]] = []

    def submit(self, key: int, prompt: Prompt, rollouts: Any, *, counted: bool = True) -> None:
        self.waiting.append((key, tuple(Score(value=1.0) for _ in rollouts)))

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        waiting, self.waiting = self.waiting, []
        return waiting


def batch_of_leases(folder: Path, versions: tuple[int, ...]) -> TrainBatch:
    """One group of four a lease, drawn by the fake engine on one policy."""
    model, tokenizer = str(write_fake_model(folder, LETTERS, scale=1.0)), FakeTokenizer(LETTERS)
    context = InferenceContext(model=model, tokenizer=tokenizer, prompts_per_forward=2, max_tokens=16)
    producer = Producer("p0", FakeInference(context, FakeInferenceOptions()), tokenizer, Silent(), TimeAccount(), SingleTurn())
    prompts = tuple(Prompt(prompt_id=c, index=n, messages=(Message(role="user", content=c),)) for n, c in enumerate(LETTERS))
    sampling = AnnealedSampling(sampling=Sampling(temperature=1.2, max_new_tokens=6), end=0.8, updates=UPDATES)
    jobs = JobMaker([SourceJobs(prompts=prompts, sampling=sampling)], 0)
    leases = [Lease(lease_id=n, episode=0, prompt_index=n, n_sampled=4, version=version) for n, version in enumerate(versions)]
    producer.accept([jobs.job(lease) for lease in leases])
    made = {}
    while not producer.idle:
        made |= {produced.job.key: produced for produced in producer.step(0.01)}
    return assemble_batch([jobs.finished(made[lease.lease_id])[1] for lease in leases], None, BatchSettings(max_new_tokens=6))
