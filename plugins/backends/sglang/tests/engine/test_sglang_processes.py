"""The engine's processes: one that dies or is stopped is an error in time, and none of them outlives the producer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rlcore_plugin_sglang.options import SglangOptions
from rlcore_plugin_sglang.sglang_backend import SglangBackend

from rlcore.api import FinishReason, RunError
from rlcore.testing import update_engine
from rlcore.testing.leftovers import Leftovers
from tests.process_family import await_end, descendants
from tests.serving_fixtures import lent_backends

TOLERANCE = 1e-4
SEQUENCE = np.arange(3, 30, dtype=np.int32)


def scheduler_of(engine) -> int:
    """The process that schedules and computes."""
    return next(pid for pid in descendants(engine._owned._process.pid) if b"scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes())


def poll_on(engine) -> None:
    """For a minute at most."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        engine.poll(0.5)


@pytest.fixture(scope="module")
def lasting(folder):
    """One engine for the tests that do not end it; each begins with an update."""
    for make in lent_backends(folder, lambda context, options: SglangBackend(context, SglangOptions(**options))):
        yield make(max_tokens=900, endless=True)


def test_updates_while_it_generates_are_seen_in_every_token(model, lasting, ask, snapshot):
    """Five updates pass under each answer; each token is what the weights of its version say of the whole context."""
    import torch

    engine = lasting
    update_engine(engine, snapshot(0))
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=800, temperature=1.3) for n in range(8)]
    engine.submit(requests)
    answers, models = {}, [model(seed) for seed in (0, 1)]
    for version in range(1, 6):
        answers |= {completion.request_id: completion for completion in engine.poll(0.3)}
        update_engine(engine, snapshot(version, seed=version % 2))
    while len(answers) < len(requests):
        answers |= {completion.request_id: completion for completion in engine.poll(1.0)}
    assert any(len(set(answer.versions.tolist())) > 2 for answer in answers.values())
    for request in requests:
        answer = answers[request.request_id]
        assert len(answer.token_ids) == 800
        assert (np.diff(answer.versions) >= 0).all()
        ids = torch.tensor([*request.token_ids.tolist(), *answer.token_ids.tolist()])[None]
        with torch.inference_mode():
            rows = [one(input_ids=ids, use_cache=False).logits[0, len(request.token_ids) - 1 : -1].double() / 1.3 for one in models]
        drawn = [torch.log_softmax(row, -1).numpy()[np.arange(len(answer.token_ids)), answer.token_ids] for row in rows]
        expected = np.where(answer.versions % 2 == 0, drawn[0], drawn[1])
        assert np.abs(expected - answer.logprobs).max() <= TOLERANCE


def test_an_update_to_the_same_weights_changes_no_draw(lasting, ask, answered, snapshot):
    """What is asked for anew draws what it would have drawn."""
    engine = lasting
    update_engine(engine, snapshot(10, seed=0))
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=300, temperature=1.3) for n in range(4)]
    whole = answered(engine, requests)
    engine.submit(requests)
    answers: dict = {}
    for version in range(11, 14):
        answers |= {completion.request_id: completion for completion in engine.poll(0.1)}
        update_engine(engine, snapshot(version, seed=0))
    while len(answers) < len(requests):
        answers |= {completion.request_id: completion for completion in engine.poll(1.0)}
    for name, answer in whole.items():
        assert answers[name].token_ids.tolist() == answer.token_ids.tolist()
    assert any(len(set(answer.versions.tolist())) > 1 for answer in answers.values())


def test_what_is_dropped_keeps_its_tokens_and_their_versions(lasting, ask, answered, snapshot):
    engine = lasting
    update_engine(engine, snapshot(20, seed=0))
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=800, temperature=1.3) for n in range(11)]  # r1 begins as r10 does
    whole = answered(engine, requests)
    engine.submit(requests)
    engine.poll(0.5)
    engine.cancel(["r0", "r1", "unknown"])
    dropped = {completion.request_id: completion for completion in engine.poll(0.0)}
    assert set(dropped) == {"r0", "r1"}
    for name, answer in dropped.items():
        count = len(answer.token_ids)
        assert (answer.finish, answer.versions.tolist()) == (FinishReason.ABORTED, [20] * count)
        assert answer.token_ids.tolist() == whole[name].token_ids[:count].tolist()
    engine.submit(requests[:1])  # its id can be used again
    again: dict = {}
    while len(again) < 10:
        again |= {completion.request_id: completion for completion in engine.poll(1.0)}
    for name, answer in again.items():
        assert answer.token_ids.tolist() == whole[name].token_ids.tolist()


def test_the_tokenizer_says_what_ends_an_answer_and_not_the_folder_of_the_model(lasting, ask, answered, snapshot, monkeypatch):
    """Token 0 is the end of sequence of the model's configuration, and 5 is that of the tokenizer here."""
    engine = lasting
    update_engine(engine, snapshot(30, seed=0))
    stops = type(engine._context.tokenizer)()
    stops.stop_ids = frozenset({5})
    monkeypatch.setattr(engine, "_context", replace(engine._context, tokenizer=stops))
    requests = [ask(f"r{n}", [3, 4], noise=n, max_new_tokens=200, temperature=1.3) for n in range(16)]
    answers = answered(engine, requests)
    for answer in answers.values():
        tokens = answer.token_ids.tolist()
        assert (tokens[-1] == 5) == (answer.finish is FinishReason.STOP)
        assert 5 not in tokens[:-1]
        assert answer.finish is FinishReason.STOP or len(tokens) == 200
    assert any(0 in answer.token_ids[:-1] for answer in answers.values())


@pytest.mark.parametrize("waits", [pytest.param("for tokens", marks=pytest.mark.nightly), "for an order"])
def test_an_engine_that_is_stopped_is_an_error_in_time(waits, backend, ask):
    engine = backend(max_tokens=1000, endless=True, silence_seconds=3)
    family = [engine._owned._process.pid, *descendants(engine._owned._process.pid)]
    if waits == "for tokens":
        engine.submit([ask("r0", [3, 5], max_new_tokens=990, temperature=1.3)])
    os.kill(scheduler_of(engine), signal.SIGSTOP)
    with pytest.raises(RunError, match=r"SGLang's engine has (produced no token|sent nothing) for 3 s.*; its processes were ended"):
        engine.score(SEQUENCE) if waits == "for an order" else poll_on(engine)
    await_end(family, 10)
    with pytest.raises(RunError, match="its processes were ended"):
        engine.score(SEQUENCE)


@pytest.mark.nightly  # test_engine_faults kills one in a run
def test_an_engine_whose_process_dies_is_an_error_and_leaves_nothing(backend, ask):
    before = Leftovers()
    engine = backend(max_tokens=1000, endless=True)
    before.look()
    family = [engine._owned._process.pid, *descendants(engine._owned._process.pid)]
    engine.submit([ask("r0", [3, 5], max_new_tokens=990, temperature=1.3)])
    os.kill(scheduler_of(engine), signal.SIGKILL)
    with pytest.raises(RunError, match="SGLang's engine process died"):
        poll_on(engine)
    engine.close()
    await_end(family, 10)
    assert before.found() == []


PRODUCER = """
import sys
from rlcore.api import InferenceContext, Request, Sampling
from rlcore.testing import FakeTokenizer
from rlcore_plugin_sglang.options import SglangOptions
from rlcore_plugin_sglang.sglang_backend import SglangBackend

if __name__ == "__main__":
    tokenizer = FakeTokenizer()
    tokenizer.stop_ids = frozenset()
    context = InferenceContext(model=sys.argv[1], tokenizer=tokenizer, prompts_per_forward=8, max_tokens=1000)
    engine = SglangBackend(context)
    asked = [Request(request_id=str(n), token_ids=[3, 5], sampling=Sampling(max_new_tokens=990), noise=(0, 0, 0, n)) for n in range(8)]
    engine.submit(asked)
    engine.poll(0.0)
    print("generates", flush=True)
    while True:
        engine.poll(0.1)
"""


@contextmanager
def producer(folder, tmp_path):
    """A process that generates, and the pids of its engine."""
    program = tmp_path / "producer.py"
    program.write_text(PRODUCER)
    with subprocess.Popen([sys.executable, str(program), folder], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "generates\n"
            yield process, descendants(process.pid)
        finally:
            process.kill()


@pytest.mark.parametrize(
    "stopped", [pytest.param(False, id="", marks=pytest.mark.nightly), pytest.param(True, id="and its scheduler is stopped")]
)
def test_nothing_outlives_a_producer_that_is_killed(stopped, folder, tmp_path):
    with producer(folder, tmp_path) as (process, family):
        assert len(family) == 3
        if stopped:
            os.kill(family[1], signal.SIGSTOP)
        process.kill()
        await_end(family, 20)
