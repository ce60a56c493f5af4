"""The log probabilities that the engine reports are those that a plain forward pass in fp32 computes, however the batch was cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlcore.api import Sampling
from rlcore.testing import update_engine

TOLERANCE = 1e-4


def trainer_logprobs(model, context, tokens, temperature):
    """One sequence alone, no padding, no cache: float32[T]."""
    ids = torch.tensor(np.concatenate([context, tokens]).astype(np.int64))[None]
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(context) - 1 : -1]
    return torch.log_softmax(logits / temperature, dim=-1).gather(1, ids[0, len(context) :, None]).squeeze(1).numpy()


def worst_gap(model, requests, finished):
    assert set(finished) == {request.request_id for request in requests}
    return max(
        float(
            np.abs(
                trainer_logprobs(model, request.token_ids, finished[request.request_id].token_ids, request.sampling.temperature or 1.0)
                - finished[request.request_id].logprobs
            ).max()
        )
        for request in requests
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_equal_the_trainers_at_any_temperature_with_ragged_groups_and_late_admission(
    kind, attention, request, backend, plain, prompts, requests_of, drain
):
    path = request.getfixturevalue(kind)
    engine, model = backend(path, prompts_per_forward=2, attention=attention), plain(path)
    requests = []
    for place, temperature in enumerate((0.5, 0.7, 1.0, 1.3)):
        sampling = Sampling(temperature=temperature, max_new_tokens=10 + 7 * place)
        requests += requests_of(prompts([3, 17, 9], seed=place), [3, 1, 5], sampling, seed=place, name=f"t{temperature}-")
    engine.submit(requests[:20])
    finished = {completion.request_id: completion for completion in engine.poll(0.0)}
    engine.submit(requests[20:])
    finished |= drain(engine)
    assert worst_gap(model, requests, finished) < TOLERANCE


def test_equal_the_trainers_after_an_update(qwen2, backend, plain, prompts, requests_of, drain, snapshot_of):
    engine, model = backend(qwen2), plain(qwen2)
    before = requests_of(prompts([5, 8]), [4, 4], Sampling(max_new_tokens=12), name="before-")
    engine.submit(before)
    assert worst_gap(model, before, drain(engine)) < TOLERANCE
    assert update_engine(engine, snapshot_of(model, 3, shift=0.05)) == 3
    after = requests_of(prompts([5, 8]), [4, 4], Sampling(temperature=0.7, max_new_tokens=12), name="after-")
    engine.submit(after)
    finished = drain(engine)
    assert worst_gap(model, after, finished) < TOLERANCE
    assert all((completion.versions == 3).all() for completion in finished.values())
    assert worst_gap(plain(qwen2), after, finished) > 10 * TOLERANCE, "the test could not tell the versions apart"


def test_a_wrong_temperature_would_be_seen(qwen2, backend, plain, prompts, requests_of, drain):
    engine, model = backend(qwen2), plain(qwen2)
    requests = requests_of(prompts([5]), [4], Sampling(temperature=0.9, max_new_tokens=8))
    engine.submit(requests)
    finished = drain(engine)
    wrong = trainer_logprobs(model, requests[0].token_ids, finished["0-0"].token_ids, 1.0)
    assert np.abs(wrong - finished["0-0"].logprobs).max() > 100 * TOLERANCE


def test_greedy_takes_the_likeliest_token_and_reports_it_at_temperature_1(llama, backend, plain, prompts, requests_of, drain):
    engine, model = backend(llama), plain(llama)
    sampled = requests_of(prompts([6, 11]), [2, 2], Sampling(max_new_tokens=9), name="s")
    greedy = requests_of(prompts([6, 11]), [1, 1], Sampling(temperature=0.0, max_new_tokens=9), name="g")
    engine.submit([*sampled, *greedy])
    finished = drain(engine)
    assert worst_gap(model, [*sampled, *greedy], finished) < TOLERANCE
    for request in greedy:
        ids = torch.tensor(np.concatenate([request.token_ids, finished[request.request_id].token_ids]).astype(np.int64))[None]
        with torch.inference_mode():
            likeliest = model(input_ids=ids).logits[0, len(request.token_ids) - 1 : -1].argmax(-1)
        np.testing.assert_array_equal(likeliest.numpy(), finished[request.request_id].token_ids)


def test_probe_scores_a_sequence_at_temperature_1(qwen2, backend, plain, prompts):
    sequence = prompts([20])[0]
    expected = trainer_logprobs(plain(qwen2), sequence[:1], sequence[1:], 1.0)
    scored = backend(qwen2).score(sequence)
    assert scored.dtype == np.float32
    np.testing.assert_allclose(scored, expected, atol=1e-5)


def test_bfloat16_decodes_close_to_its_own_forward_pass(qwen2, backend, prompts, requests_of, drain):
    engine = backend(qwen2, dtype="bfloat16")
    requests = requests_of(prompts([4, 13]), [3, 3], Sampling(max_new_tokens=10))
    engine.submit(requests)
    for name, completion in drain(engine).items():
        context = next(request.token_ids for request in requests if request.request_id == name)
        scored = engine.score(np.concatenate([context, completion.token_ids]))[len(context) - 1 :]
        assert np.abs(scored - completion.logprobs).max() < 0.3
