"""The engine as processes of its own, alone and split in two: what it draws is what the engine in the producer's process draws, and none of
its processes outlives the producer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cache, partial

import numpy as np
import pytest
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.vllm_backend import VllmBackend

from rlcore.api import FinishReason
from rlcore.testing import update_engine
from rlcore.testing.leftovers import Leftovers
from tests.process_family import await_end, descendants
from tests.serving_fixtures import lent_backends

TOLERANCE = 1e-4
SEQUENCE = np.arange(3, 30, dtype=np.int32)
FORMS = {"own process": {"own_process": True}, "split in two": {"tensor_parallel": 2}}


def in_both_forms(*, daily: str):
    """``form``: arguments of ``backend`` for an engine in processes. One of the two is run each time, the other one is nightly."""
    marks = {name: () if name == daily else pytest.mark.nightly for name in FORMS}
    return pytest.mark.parametrize("form", [pytest.param(form, id=name, marks=marks[name]) for name, form in FORMS.items()])


@pytest.fixture(scope="module")
def lasting(folder):
    """A function that gives the engine of a form, which tests share, and its processes. Each begins with an update; the last ends it."""
    for make in lent_backends(folder, lambda context, options: VllmBackend(context, VllmOptions(**options))):
        yield cache(partial(started, make))


def started(make, **form):
    """A new engine, and the pids of its processes."""
    before = descendants(os.getpid())
    engine = make(max_tokens=1000, endless=True, **form)
    return engine, [pid for pid in descendants(os.getpid()) if pid not in before]


@in_both_forms(daily="split in two")
def test_it_draws_and_updates_as_the_engine_in_one_process(form, backend, ask, answered, snapshot):
    one, many = backend(max_tokens=256), backend(max_tokens=256, **form)
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=30, temperature=1.2) for n in range(6)]
    for version in range(21):
        if version:
            sent = snapshot(version, seed=version % 3)
            assert update_engine(one, sent) == update_engine(many, sent) == version
        assert np.allclose(many.score(SEQUENCE), one.score(SEQUENCE), atol=TOLERANCE)
        expected, found = answered(one, requests), answered(many, requests)
        for name, answer in expected.items():
            assert found[name].token_ids.tolist() == answer.token_ids.tolist(), (version, name)
            assert np.allclose(found[name].logprobs, answer.logprobs, atol=TOLERANCE)
            assert set(found[name].versions.tolist()) == {version}
            assert found[name].finish == answer.finish


@in_both_forms(daily="own process")
def test_updates_while_it_generates_are_seen_in_every_token(model, lasting, ask, snapshot, form):
    """Five updates pass under each answer; each token is what the weights of its version say of the whole context."""
    import torch

    engine, _ = lasting(**form)
    update_engine(engine, snapshot(0))
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=800, temperature=1.3) for n in range(8)]
    engine.submit(requests)
    answers, models = {}, [model(seed) for seed in (0, 1)]
    for version in range(1, 6):
        answers |= {completion.request_id: completion for completion in engine.poll(0.05)}
        update_engine(engine, snapshot(version, seed=version % 2))
    while len(answers) < len(requests):
        answers |= {completion.request_id: completion for completion in engine.poll(1.0)}
    assert any(len(set(answer.versions.tolist())) > 2 for answer in answers.values())
    for request in requests:
        answer = answers[request.request_id]
        assert (np.diff(answer.versions) >= 0).all()
        ids = torch.tensor([*request.token_ids.tolist(), *answer.token_ids.tolist()])[None]
        with torch.inference_mode():
            rows = [one(input_ids=ids, use_cache=False).logits[0, len(request.token_ids) - 1 : -1].double() / 1.3 for one in models]
        drawn = [torch.log_softmax(row, -1).numpy()[np.arange(len(answer.token_ids)), answer.token_ids] for row in rows]
        expected = np.where(answer.versions % 2 == 0, drawn[0], drawn[1])
        assert np.abs(expected - answer.logprobs).max() <= TOLERANCE


def test_what_is_dropped_keeps_its_tokens_and_their_versions(lasting, ask, answered, snapshot):
    engine, _ = lasting(own_process=True)
    update_engine(engine, snapshot(20, seed=0))
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=800, temperature=1.3) for n in range(3)]
    whole = answered(engine, requests)
    engine.submit(requests)
    engine.poll(0.0)
    engine.cancel(["r0", "r1", "unknown"])
    dropped = {completion.request_id: completion for completion in engine.poll(0.0)}
    for name in ("r0", "r1"):
        count = len(dropped[name].token_ids)
        assert dropped[name].finish is FinishReason.ABORTED
        assert dropped[name].token_ids.tolist() == whole[name].token_ids[:count].tolist()
        assert dropped[name].versions.tolist() == [20] * count
    engine.submit(requests[:1])  # its id can be used again
    again = dict(dropped)
    while len(again) < 3 or again["r0"].finish is FinishReason.ABORTED:
        again |= {completion.request_id: completion for completion in engine.poll(1.0)}
    for name in ("r0", "r2"):
        assert again[name].token_ids.tolist() == whole[name].token_ids.tolist()


PRODUCER = """
import sys, time
from rlcore.api import InferenceContext, Request, RunError, Sampling
from rlcore.testing import FakeTokenizer
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.vllm_backend import VllmBackend

if __name__ == "__main__":
    tokenizer = FakeTokenizer()
    tokenizer.stop_ids = frozenset()
    context = InferenceContext(
        model=sys.argv[1], tokenizer=tokenizer, prompts_per_forward=8, max_tokens=1000, tensor_parallel=int(sys.argv[2])
    )
    engine = VllmBackend(context, VllmOptions(own_process=True))
    asked = [Request(request_id=str(n), token_ids=[3, 5], sampling=Sampling(max_new_tokens=990), noise=(0, 0, 0, n)) for n in range(8)]
    engine.submit(asked)
    engine.poll(0.0)
    print("generates", flush=True)
    try:
        while True:
            engine.poll(0.1)
    except RunError as error:
        print(error, flush=True)
    began = time.monotonic()
    engine.close()
    print(time.monotonic() - began, flush=True)
"""


@contextmanager
def producer(form, folder, tmp_path):
    """A process that generates until its engine fails, and the pids of the engine."""
    program = tmp_path / "producer.py"
    program.write_text(PRODUCER)
    command = [sys.executable, str(program), folder, str(form.get("tensor_parallel", 1))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "generates\n"
            family = descendants(process.pid)
            assert len(family) == (3 if "tensor_parallel" in form else 1)
            yield process, family
        finally:
            process.kill()


def await_nothing(leftovers: Leftovers) -> None:
    until = time.monotonic() + 20
    while found := leftovers.found():
        assert time.monotonic() < until, found
        time.sleep(0.1)


@in_both_forms(daily="split in two")
def test_a_worker_that_is_killed_is_an_error_at_once_and_its_producer_ends_and_leaves_nothing(form, folder, tmp_path):
    before = Leftovers()
    with producer(form, folder, tmp_path) as (process, family):
        before.look()
        os.kill(family[-1], signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
    assert "vLLM's engine process, or a worker of it, died" in said
    assert float(said.splitlines()[-1]) < 20
    assert process.returncode == 0
    await_nothing(before)


@in_both_forms(daily="own process")
@pytest.mark.parametrize(
    "stopped", [pytest.param(False, id="", marks=pytest.mark.nightly), pytest.param(True, id="and a worker is stopped")]
)
def test_nothing_outlives_a_producer_that_is_killed(stopped, form, folder, tmp_path):
    before = Leftovers()
    with producer(form, folder, tmp_path) as (process, family):
        before.look()
        if stopped:
            os.kill(family[-1], signal.SIGSTOP)
        process.kill()
        await_end(family, 20)
    await_nothing(before)


@in_both_forms(daily="own process")
def test_an_engine_whose_worker_is_stopped_can_be_closed(form, lasting, ask):
    engine, mine = lasting(**form)
    engine.submit([ask("r0", [3, 5], max_new_tokens=900, temperature=1.3)])
    os.kill(mine[-1], signal.SIGSTOP)
    engine.close()
    await_end(mine, 10)
