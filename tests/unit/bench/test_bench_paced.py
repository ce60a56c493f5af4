"""The paced backends keep the time that they are set to. The clock here is one that only sleeping moves."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks import paced
from benchmarks.paced import PacedInference, PacedInferenceOptions, PacedTraining, PacedTrainingOptions, response_tokens
from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import InferenceContext, ModelRole, OptimizerSettings, TrainingBackend, TrainingContext
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, FinishReason, Request
from rlcore.testing import FakePolicy, FakeTokenizer, LengthKind, RunTester, make_rollout, make_train_batch, update_engine, write_fake_model
from rlcore.testing.records import make_request
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.weights import weights_of

CHARACTERS = "abcdefgh"
VOCABULARY = len(FakeTokenizer(CHARACTERS))


class Time:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.naps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(paced, "time", clock)
    return clock


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_fake_model(tmp_path / "model", CHARACTERS))


def engine(model: str, **options: object) -> PacedInference:
    """Ten tokens a request and 0.1 s a token, where nothing else is said."""
    context = InferenceContext(model=model, tokenizer=FakeTokenizer(CHARACTERS), prompts_per_forward=8, max_tokens=1000)
    chosen = {"seconds_per_token": 0.1, "mean_length": 10, **options}
    return PacedInference(context, PacedInferenceOptions.model_validate(chosen))


def ask(*names: int, tokens: int = 500) -> list[Request]:
    return [make_request(str(name), [3, 5, 4], noise=name, max_new_tokens=tokens) for name in names]


def names(completions: list[Completion]) -> list[str]:
    return [completion.request_id for completion in completions]


def weights(version: int) -> Snapshot:
    return Snapshot.of(version, dict(FakePolicy.random(VOCABULARY, version).tensors()))


def test_poll_sleeps_once_until_the_next_end(model: str, clock: Time) -> None:
    made = engine(model)
    made.submit(ask(1))
    clock.now += 0.25
    made.submit(ask(2))
    assert names(made.poll(5.0)) == ["1"]
    assert names(made.poll(5.0)) == ["2"]
    assert clock.naps == [0.75, 0.25]


def test_poll_gives_up_at_its_timeout_and_at_once_where_nothing_runs(model: str, clock: Time) -> None:
    made = engine(model)
    assert made.poll(5.0) == []
    made.submit(ask(1))
    assert made.poll(0.3) == []
    assert clock.naps == [0.3]


def test_a_free_slot_is_taken_the_moment_it_is_free_whoever_polls(model: str, clock: Time) -> None:
    made = engine(model, slots=2)
    made.submit(ask(1, 2, 3))
    clock.now += 1.5
    assert sorted(names(made.poll(0.0))) == ["1", "2"]
    assert names(made.poll(5.0)) == ["3"]
    assert clock.now == pytest.approx(1002.0)


def test_batch_by_batch_answers_come_together_and_the_next_batch_waits_for_them(model: str, clock: Time) -> None:
    made = engine(model, slots=3, batch_synchronous=True, lengths="lognormal")
    requests = ask(1, 2, 3, 4)
    seconds = [0.1 * response_tokens(request.noise, made.options) for request in requests]
    assert seconds[0] != seconds[1]
    made.submit(requests[:2])
    made.submit(requests[2:])
    assert made.poll(max(seconds[:2]) - 0.05) == []
    assert sorted(names(made.poll(1000.0))) == ["1", "2"]
    assert clock.now == pytest.approx(1000.0 + max(seconds[:2]))
    assert sorted(names(made.poll(1000.0))) == ["3", "4"]
    assert clock.now == pytest.approx(1000.0 + max(seconds[:2]) + max(seconds[2:]))
    assert len(clock.naps) == 3


def answered(made: PacedInference, requests: list[Request]) -> dict[str, Completion]:
    made.submit(requests)
    answers: dict[str, Completion] = {}
    while len(answers) < len(requests):
        answers |= {completion.request_id: completion for completion in made.poll(1000.0)}
    return answers


def test_what_a_request_becomes_depends_on_its_noise_key_alone(model: str, clock: Time) -> None:
    together = answered(engine(model, lengths="lognormal"), ask(*range(20)))
    narrow = answered(engine(model, lengths="lognormal", slots=1), ask(*range(19, -1, -1)))
    other = answered(engine(model, lengths="lognormal", seed=1), ask(*range(20)))
    assert all(np.array_equal(together[name].token_ids, narrow[name].token_ids) for name in together)
    assert len({len(answer.token_ids) for answer in together.values()}) > 5
    assert [len(together[name].token_ids) for name in together] != [len(other[name].token_ids) for name in together]


def test_lengths_are_those_of_the_distribution(model: str, clock: Time) -> None:
    made = engine(model, lengths="lognormal", mean_length=20, cut=4.0)
    lengths = np.array([len(answer.token_ids) for answer in answered(made, ask(*range(2000), tokens=900)).values()])
    assert abs(lengths.mean() - 20) < 4 * lengths.std() / np.sqrt(2000)
    assert lengths.max() == 80


def test_a_response_stops_with_the_stop_token_or_at_its_limit(model: str, clock: Time) -> None:
    made = engine(model)
    answers = answered(made, [*ask(1), *ask(2, tokens=4)])
    assert (answers["1"].finish, len(answers["1"].token_ids), answers["1"].token_ids[-1]) == (FinishReason.STOP, 10, 0)
    assert (answers["2"].finish, len(answers["2"].token_ids)) == (FinishReason.LENGTH, 4)
    for answer in answers.values():
        assert np.isfinite(answer.logprobs).all()
        assert (answer.token_ids < VOCABULARY).all()


def test_tokens_after_an_update_carry_the_new_version_where_requests_resume(model: str, clock: Time) -> None:
    made = engine(model, update_seconds=7.0)
    made.submit(ask(1))
    for version in (1, 2):
        clock.now += 0.35
        update_engine(made, weights(version))
    (answer,) = made.poll(5.0)
    assert answer.versions.tolist() == [0] * 4 + [1] * 3 + [2] * 3
    assert clock.now == pytest.approx(1000.0 + 1.0 + 14.0)  # nothing is generated while weights are taken


def test_a_request_keeps_its_version_where_requests_finish(model: str, clock: Time) -> None:
    made = engine(model, in_flight="finish", slots=1)
    made.submit(ask(1, 2))
    clock.now += 0.35
    update_engine(made, weights(1))
    answers = [*made.poll(5.0), *made.poll(5.0)]
    assert [set(answer.versions.tolist()) for answer in answers] == [{0}, {1}]
    assert made.capabilities.in_flight is InFlight.FINISH


def test_the_probe_is_of_the_weights_that_are_served(model: str, clock: Time) -> None:
    made = engine(model)
    update_engine(made, weights(3))
    sequence = np.array([3, 5, 6, 4], np.int32)
    assert np.allclose(made.score(sequence), FakePolicy.random(VOCABULARY, 3).logprobs(sequence), atol=1e-6)


def test_versions_that_no_token_needs_are_forgotten(model: str, clock: Time) -> None:
    made = engine(model)
    for version in range(1, 50):
        clock.now += 1.0
        update_engine(made, weights(version))
    assert len(made._versions) == 2


@pytest.mark.parametrize("batch_synchronous", [False, True])
def test_cancelled_requests_come_back_with_the_tokens_they_have_and_free_their_slots(
    model: str, clock: Time, batch_synchronous: bool
) -> None:
    made = engine(model, slots=1, batch_synchronous=batch_synchronous)
    made.submit(ask(1, 2, 3))
    clock.now += 0.35
    made.cancel(["1", "3", "unknown"])
    aborted = {answer.request_id: (answer.finish, len(answer.token_ids)) for answer in made.poll(0.0)}
    assert aborted == {"1": (FinishReason.ABORTED, 3), "3": (FinishReason.ABORTED, 0)}
    assert names(made.poll(5.0)) == ["2"]
    assert clock.now == pytest.approx(1001.35)


# --- training ------------------------------------------------------------------------------------------------------------


def context(model: str, rank: int = 0, size: int = 1, rendezvous: str = "") -> TrainingContext:
    return TrainingContext(
        model=model,
        optimizer=OptimizerSettings(learning_rate=0.1, total_steps=10),
        rollouts_per_forward=1,
        tokens_per_forward=100,
        prompts_per_slice=1,
        rank=rank,
        world_size=size,
        rendezvous=rendezvous,
    )


def one_batch() -> TrainBatch:
    return make_train_batch([make_rollout([3, 5, 4], [6, 0])], [1.0])


def trainer(model: str) -> PacedTraining:
    made = PacedTraining(context(model), PacedTrainingOptions(update_seconds=0.5))
    made.setup(context(model))
    return made


def last(backend: TrainingBackend) -> np.ndarray:
    return weights_of(backend)["last.weight"].data


def test_a_step_takes_its_time_and_moves_the_weights(model: str, clock: Time) -> None:
    made = trainer(model)
    before, batch = last(made), one_batch()
    metrics = made.update(batch, PlainObjective())
    assert clock.naps == [0.5]
    assert not np.array_equal(before, last(made))
    assert metrics["learning_rate"] > 0.0
    assert np.array_equal(made.logprobs(batch, ModelRole.POLICY), batch.rollout_logprobs)


def test_a_run_goes_on_where_it_was_saved(model: str, clock: Time, tmp_path: Path) -> None:
    straight, saved = trainer(model), trainer(model)
    batch = one_batch()
    for made in (straight, saved):
        made.update(batch, PlainObjective())
    saved.save_model(tmp_path / "later")
    saved.save(tmp_path / "state")
    loaded = trainer(str(tmp_path / "later"))
    loaded.load(tmp_path / "state")
    for made in (straight, loaded):
        made.update(batch, PlainObjective())
    assert np.array_equal(last(straight), last(loaded))


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


def one_of_two(model: str, rank: int, rendezvous: str) -> PacedTraining:
    made = PacedTraining(options=PacedTrainingOptions(update_seconds=0.0))
    made.setup(context(model, rank, 2, rendezvous))
    assert made.data_parallel == (rank, 2)
    return made


def test_all_ranks_make_the_same_weights_and_see_what_all_have(model: str) -> None:
    rendezvous = free_address()

    def work(rank: int) -> tuple[dict[str, float], np.ndarray, list[int]]:
        made = one_of_two(model, rank, rendezvous)
        metrics = dict(made.update(one_batch(), PlainObjective()))
        gathered = [len(values) for values in made.gather(np.zeros(rank + 1))]
        made.close()
        return metrics, last(made), gathered

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(work, (0, 1))
    assert one[0] == other[0]
    assert np.array_equal(one[1], other[1])
    assert one[2] == other[2] == [1, 2]


def test_no_step_ends_without_the_other_ranks(model: str) -> None:
    rendezvous = free_address()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda rank: one_of_two(model, rank, rendezvous), (0, 1))
    other.close()
    with pytest.raises(RunError, match="rank 1"):
        one.update(one_batch(), PlainObjective())
    one.close()


def test_a_run_of_paced_backends_trains(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("paced", target="benchmarks.paced_plugin")
    run = tester.fake_run(
        inference={"name": "paced", "options": {"seconds_per_token": 1e-4, "mean_length": 4, "lengths": str(LengthKind.LOGNORMAL)}},
        training={"name": "paced", "options": {"update_seconds": 0.001}},
        sampling={"max_new_tokens": 16},
        schedule={"max_staleness": 1},
    )
    outcome = tester.run("train", run, "--json").assert_ok()
    assert outcome.json["steps"] == 3
