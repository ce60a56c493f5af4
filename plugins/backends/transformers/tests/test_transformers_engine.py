"""The engine as a stream: admission, batches of any cut, stops, lengths, cancellation, updates in flight."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlcore.api import ConfigError, FinishReason, InFlight, Request, RunError, Sampling
from rlcore.testing import update_engine


def same(left, right) -> bool:
    return left.keys() == right.keys() and all(
        left[name].finish is right[name].finish
        and np.array_equal(left[name].token_ids, right[name].token_ids)
        and np.array_equal(left[name].logprobs, right[name].logprobs)
        for name in left
    )


def test_tokens_do_not_depend_on_how_the_batch_was_cut(qwen2, backend, prompts, requests_of, drain):
    requests = requests_of(prompts(range(3, 35)), [8] * 32, Sampling(max_new_tokens=10), seed=5)
    results = []
    for options in ({"prompts_per_forward": 1}, {"prompts_per_forward": 4}, {"prompts_per_forward": 32}, {"max_rows": 5}):
        engine = backend(qwen2, **options)
        engine.submit(requests)
        results.append(drain(engine))
    for other in results[1:]:
        assert {name: done.token_ids.tolist() for name, done in other.items()} == {
            name: done.token_ids.tolist() for name, done in results[0].items()
        }
        assert max(np.abs(other[name].logprobs - results[0][name].logprobs).max() for name in other) < 1e-4


def test_two_runs_are_bit_identical(qwen2, backend, prompts, requests_of, drain):
    requests = requests_of(prompts([4, 9, 30, 2, 7]), [8, 3, 8, 1, 5], Sampling(temperature=1.3, max_new_tokens=40))
    first, second = backend(qwen2, prompts_per_forward=2), backend(qwen2, prompts_per_forward=2)
    first.submit(requests)
    second.submit(requests)
    assert same(drain(first), drain(second))


def test_another_noise_gives_another_answer(qwen2, backend, prompts, requests_of, drain):
    engine = backend(qwen2)
    engine.submit(requests_of(prompts([6]), [6], Sampling(max_new_tokens=12)))
    finished = drain(engine)
    assert len({completion.token_ids.tobytes() for completion in finished.values()}) == 6


def passes_of(engine, monkeypatch) -> list[tuple[int, int]]:
    """Sequences and tokens of each pass from here on."""
    seen = []
    start, decode = engine._path.start, engine._path.decode

    def starts(contexts, *rest):
        seen.append((len(contexts), max(map(len, contexts))))
        return start(contexts, *rest)

    def decodes(rows):
        seen.append((rows.count, 1))
        return decode(rows)

    monkeypatch.setattr(engine._path, "start", starts)
    monkeypatch.setattr(engine._path, "decode", decodes)
    return seen


@pytest.mark.parametrize("fused", [True, False])
def test_a_prompt_is_computed_once_for_its_group(qwen2, backend, prompts, requests_of, drain, monkeypatch, fused):
    engine = backend(qwen2, fused=fused)
    seen = passes_of(engine, monkeypatch)
    engine.submit(requests_of(prompts([6, 9]), [8, 4], Sampling(max_new_tokens=3, temperature=0.7)))
    drain(engine)
    assert seen == [(2, 9), (12, 1), (12, 1)]


def test_rows_that_end_are_dropped_and_prompts_are_admitted_while_others_run(qwen2, backend, prompts, requests_of, monkeypatch):
    engine = backend(qwen2, prompts_per_forward=2)
    rows = passes_of(engine, monkeypatch)
    short, long = Sampling(max_new_tokens=2), Sampling(max_new_tokens=6)
    first, second, third = prompts([5, 5, 5])
    engine.submit([*requests_of([first], [2], short, name="a"), *requests_of([second], [1], long, name="b")])
    engine.submit(requests_of([third], [3], short, name="c"))
    order = []
    while completions := engine.poll(60.0):
        order += [completion.request_id for completion in completions]
    assert rows == [(2, 5), (3, 1), (1, 5), (4, 1), (1, 1), (1, 1), (1, 1)]
    assert order == ["a0-0", "a0-1", "c0-0", "c0-1", "c0-2", "b0-0"]


def test_a_response_of_one_token_ends_on_admission_and_disturbs_no_other(qwen2, backend, prompts, requests_of, drain):
    long = requests_of(prompts([5, 6]), [2, 2], Sampling(max_new_tokens=9), name="long-")
    short = requests_of(prompts([7]), [3], Sampling(max_new_tokens=1), name="short-")
    alone, expected = backend(qwen2), {}
    for request in [*long, *short]:
        alone.submit([request])
        expected |= drain(alone)
    engine = backend(qwen2)
    engine.submit(long)
    assert engine.poll(0.0) == []
    engine.submit(short)
    finished = {completion.request_id: completion for completion in engine.poll(0.0)}
    assert set(finished) == {request.request_id for request in short}
    finished |= drain(engine)
    assert {name: done.token_ids.tolist() for name, done in finished.items()} == {
        name: done.token_ids.tolist() for name, done in expected.items()
    }


def test_poll_decodes_one_step_when_time_is_short_and_returns_at_once_when_idle(qwen2, backend, prompts, requests_of):
    engine = backend(qwen2)
    assert engine.poll(60.0) == []
    engine.submit(requests_of(prompts([5]), [1], Sampling(max_new_tokens=4)))
    polls = 0
    while not (completions := engine.poll(0.0)):
        polls += 1
    assert polls == 3
    assert len(completions[0].token_ids) == 4
    assert engine.poll(60.0) == []


def test_max_new_tokens_and_max_tokens_bound_the_response(qwen2, backend, prompts, requests_of, drain):
    engine = backend(qwen2, max_tokens=30)
    engine.submit(requests_of(prompts([10, 25]), [1, 1], Sampling(max_new_tokens=8)))
    finished = drain(engine)
    assert [len(finished[name].token_ids) for name in ("0-0", "1-0")] == [8, 5]
    assert {completion.finish for completion in finished.values()} == {FinishReason.LENGTH}


def test_a_stop_token_ends_the_response_and_is_part_of_it(qwen2, backend, prompts, requests_of, drain, tokenizer):
    engine = backend(qwen2)
    request = requests_of(prompts([10]), [1], Sampling(max_new_tokens=30))
    engine.submit(request)
    free = drain(engine)["0-0"].token_ids
    wanted = int(free[12])
    first = int(np.flatnonzero(free == wanted)[0])
    engine._stops[wanted] = True
    engine.submit(request)
    stopped = drain(engine)["0-0"]
    np.testing.assert_array_equal(stopped.token_ids, free[: first + 1])
    assert stopped.finish is FinishReason.STOP
    assert engine._stops[sorted(tokenizer.stop_ids)].all()


def test_a_stop_string_ends_the_response_at_the_token_that_completes_it(qwen2, backend, prompts, requests_of, drain, tokenizer):
    engine = backend(qwen2)
    engine.submit(requests_of(prompts([10, 12]), [20, 20], Sampling(max_new_tokens=40)))
    free = drain(engine)
    text = tokenizer.decode(free["0-0"].token_ids.tolist())
    plain_part = next(text[at : at + 2] for at in range(3, len(text)) if "\ufffd" not in text[at : at + 2])
    sampling = Sampling(max_new_tokens=40, stop=(plain_part, "zq"))
    engine.submit(requests_of(prompts([10, 12]), [20, 20], sampling))
    stopped = drain(engine)
    assert stopped["0-0"].finish is FinishReason.STOP
    for name, completion in stopped.items():
        np.testing.assert_array_equal(completion.token_ids, free[name].token_ids[: len(completion.token_ids)])
        tokens = free[name].token_ids.tolist()
        ends = [any(stop in tokenizer.decode(tokens[: size + 1]) for stop in sampling.stop) for size in range(len(tokens))]
        assert len(completion.token_ids) == (ends.index(True) + 1 if True in ends else len(tokens))
        assert completion.finish is (FinishReason.STOP if True in ends else free[name].finish)


def test_cancelled_requests_come_back_with_what_they_have(qwen2, backend, prompts, requests_of, drain):
    requests = requests_of(prompts([5, 6, 7]), [3, 2, 2], Sampling(max_new_tokens=20))
    free = backend(qwen2, prompts_per_forward=2)
    free.submit(requests)
    expected = drain(free)
    engine = backend(qwen2, prompts_per_forward=2)
    engine.submit(requests)
    for _ in range(5):
        assert engine.poll(0.0) == []
    engine.cancel(["0-1", "2-0", "unknown"])
    aborted = {completion.request_id: completion for completion in engine.poll(0.0)}
    assert {name: (done.finish, len(done.token_ids)) for name, done in aborted.items()} == {
        "0-1": (FinishReason.ABORTED, 5),
        "2-0": (FinishReason.ABORTED, 0),
    }
    rest = drain(engine)
    assert set(rest) == set(expected) - set(aborted)
    for name, completion in {**rest, "0-1": aborted["0-1"]}.items():
        np.testing.assert_array_equal(completion.token_ids, expected[name].token_ids[: len(completion.token_ids)])
    engine.cancel(["0-1"])
    assert engine.poll(0.0) == []


def test_an_update_in_flight_goes_on_as_a_plain_forward_of_the_new_weights(qwen2, backend, plain, prompts, requests_of, drain, snapshot_of):
    engine, old, new = backend(qwen2), plain(qwen2), plain(qwen2)
    assert engine.capabilities.in_flight is InFlight.RESUME
    engine._stops[:] = False
    requests = requests_of(prompts([5, 9]), [3, 2], Sampling(temperature=0.7, max_new_tokens=12))
    engine.submit(requests)
    for _ in range(4):
        engine.poll(0.0)
    assert update_engine(engine, snapshot_of(new, 8, shift=0.05)) == 8
    finished = drain(engine)
    for request in requests:
        done = finished[request.request_id]
        np.testing.assert_array_equal(done.versions, [0] * 4 + [8] * 8)
        context = np.concatenate([request.token_ids, done.token_ids]).astype(np.int64)
        start, ids = len(request.token_ids) - 1, torch.tensor(context[None])
        with torch.inference_mode():
            before, after = (model(input_ids=ids, use_cache=False).logits[0, start:-1] for model in (old, new))
        logits = torch.cat([before[:4], after[4:]]) / 0.7
        expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(done.token_ids.astype(np.int64))[:, None]).squeeze(1)
        np.testing.assert_allclose(done.logprobs, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([], ConfigError, "no context"),
        ([1] * 200, ConfigError, "200 tokens"),
        ([1, 5000], ConfigError, "token 5000"),
        ([1, -1], ConfigError, "token -1"),
    ],
)
def test_a_context_that_cannot_be_served_is_refused_and_nothing_is_queued(qwen2, backend, ids, error, words):
    engine = backend(qwen2)
    good = Request(request_id="good", token_ids=[1, 2], sampling=Sampling(max_new_tokens=2))
    with pytest.raises(error, match=words):
        engine.submit([good, Request(request_id="bad", token_ids=ids, sampling=Sampling(max_new_tokens=2))])
    assert engine.poll(0.0) == []


def test_a_request_id_is_used_once_at_a_time(qwen2, backend, drain):
    engine = backend(qwen2)
    request = Request(request_id="one", token_ids=[1, 2], sampling=Sampling(max_new_tokens=2))
    engine.submit([request])
    with pytest.raises(RunError, match="in flight already"):
        engine.submit([request])
    drain(engine)
    engine.submit([request])
    assert set(drain(engine)) == {"one"}


@pytest.mark.parametrize("sampling", [Sampling(max_new_tokens=0), Sampling(stop=("",))])
def test_sampling_that_makes_no_sense_is_refused(qwen2, backend, sampling):
    with pytest.raises(ConfigError, match="max_new_tokens must be at least 1"):
        backend(qwen2).submit([Request(request_id="x", token_ids=[1], sampling=sampling)])


def test_logits_that_are_not_finite_end_the_run(qwen2, backend):
    engine = backend(qwen2)
    with torch.no_grad():
        next(engine._model.parameters()).fill_(float("nan"))
    engine.submit([Request(request_id="x", token_ids=[1], sampling=Sampling(max_new_tokens=2))])
    with pytest.raises(RunError, match="not finite"):
        engine.poll(1.0)


def test_close_forgets_everything(qwen2, backend, prompts, requests_of):
    engine = backend(qwen2)
    engine.submit(requests_of(prompts([5]), [2], Sampling(max_new_tokens=6)))
    engine.poll(0.0)
    engine.close()
    assert engine.poll(0.0) == []
    engine.close()
