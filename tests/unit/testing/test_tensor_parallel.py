"""The tensor parallel fake: several processes that answer as one, and that are torn if one of them dies in an update."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import InferenceBackend, InferenceContext
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.types import Completion
from rlcore.testing import FakeInference, FakePolicy, FakeTokenizer, update_engine, write_fake_model
from rlcore.testing.inference.fake_tensor_parallel import FakeTensorParallel, FakeTensorParallelOptions
from rlcore.testing.inference.fake_tensor_worker import share
from rlcore.testing.records import make_request

CHARACTERS = "abcdefgh"
SEQUENCE = np.array([3, 5, 6, 7, 4], np.int32)


@pytest.fixture
def context(tmp_path: Path) -> InferenceContext:
    model = str(write_fake_model(tmp_path / "model", CHARACTERS, seed=0, scale=0.5))
    return InferenceContext(model=model, tokenizer=FakeTokenizer(CHARACTERS), prompts_per_forward=4, max_tokens=16, tensor_parallel=2)


@pytest.fixture
def kill_file(tmp_path: Path) -> Path:
    return tmp_path / "kill"


@pytest.fixture
def engine(context: InferenceContext, kill_file: Path) -> Iterator[FakeTensorParallel]:
    made = FakeTensorParallel(context, FakeTensorParallelOptions(kill_file=str(kill_file)))
    yield made
    made.close()
    assert all(worker.process.returncode is not None for worker in made.workers)


def weights(version: int) -> Snapshot:
    policy = FakePolicy.random(len(FakeTokenizer(CHARACTERS)), version, 0.5)
    return Snapshot.of(version, dict(policy.tensors()))


def answered(engine: InferenceBackend) -> dict[str, Completion]:
    engine.submit([make_request(f"r{n}", [3, 5, 4], noise=n, max_new_tokens=6) for n in range(6)])
    answers: list[Completion] = []
    while len(answers) < 6:
        answers += engine.poll(0.05)
    return {completion.request_id: completion for completion in answers}


def test_two_processes_answer_as_one(context: InferenceContext, engine: FakeTensorParallel) -> None:
    alone = FakeInference(context)
    for version in (0, 3):
        if version:
            update_engine(alone, weights(version))
            update_engine(engine, weights(version), max_bytes=1)
        assert np.array_equal(engine.score(SEQUENCE), alone.score(SEQUENCE))
        one, other = answered(engine), answered(alone)
        assert {key: (c.token_ids.tolist(), c.logprobs.tolist(), c.versions.tolist()) for key, c in one.items()} == {
            key: (c.token_ids.tolist(), c.logprobs.tolist(), c.versions.tolist()) for key, c in other.items()
        }


def test_a_worker_that_dies_in_an_update_leaves_the_engine_torn(engine: FakeTensorParallel, kill_file: Path) -> None:
    kill_file.touch()
    with pytest.raises(RunError, match=r"worker 1 of 2 of the fake engine died with exit code -9"):
        update_engine(engine, weights(1), max_bytes=1)
    assert not kill_file.exists()
    with pytest.raises(RunError, match="its weights are torn"):
        engine.submit([make_request("r0", [3, 5, 4])])
    with pytest.raises(RunError, match="its weights are torn"):
        engine.score(SEQUENCE)


def test_a_worker_that_dies_is_named_by_whatever_needs_it(engine: FakeTensorParallel) -> None:
    engine.workers[0].kill()
    with pytest.raises(RunError, match=r"worker 0 of 2 of the fake engine died"):
        engine.score(SEQUENCE)


@given(vocabulary=st.integers(1, 300), size=st.integers(1, 9))
def test_shares_cover_every_column_once(vocabulary: int, size: int) -> None:
    columns = [column for rank in range(size) for column in range(vocabulary)[share(vocabulary, rank, size)]]
    assert columns == list(range(vocabulary))
