"""Draws: the inverse of the cumulative distribution at one uniform number, which is a function of the request's noise alone."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_transformers.rows import BLOCK, NoiseStream
from rlcore_plugin_transformers.sampling import RowSettings, draw

from rlcore.api import Sampling

CPU = torch.device("cpu")
logits_of = st.lists(st.integers(-64, 64).map(lambda eighths: eighths / 8), min_size=2, max_size=30)
# On a grid: two logits are equal or differ by more than rounding, so that top-k has one right answer.


def drawn(logits, uniforms, sampling):
    rows = torch.tensor([logits] * len(uniforms))
    tokens, logprobs = draw(rows, torch.tensor(uniforms, dtype=torch.float64), RowSettings.of([sampling] * len(uniforms), CPU))
    return tokens.numpy(), logprobs.numpy()


def kept_distribution(logits, sampling):
    """By hand in float64: temperature, then the k likeliest, then the fewest of these that hold top_p, renormalised."""
    scaled = np.asarray(logits, np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled.max())
    order = np.argsort(-weights, kind="stable")
    keep = order[: sampling.top_k] if sampling.top_k else order
    share = weights[keep] / weights[keep].sum()
    before = np.cumsum(share) - share
    keep = keep[(before < sampling.top_p) | (np.arange(len(keep)) == 0)] if sampling.top_p < 1 else keep
    keep = keep[weights[keep] >= sampling.min_p * weights.max()]
    distribution = np.zeros(len(logits))
    distribution[keep] = weights[keep] / weights[keep].sum()
    return distribution


@settings(max_examples=60, deadline=None)
@given(logits_of, st.sampled_from([0.5, 0.7, 1.0, 1.3]), st.integers(0, 5), st.sampled_from([0.0, 0.03, 0.21, 0.9]))
def test_a_grid_of_uniforms_gives_each_token_its_share(logits, temperature, top_k, min_p):
    sampling = Sampling(temperature=temperature, top_k=top_k, min_p=min_p)
    expected = kept_distribution(logits, sampling)
    tokens, logprobs = drawn(logits, (np.arange(400) + 0.5) / 400, sampling)
    counts = np.bincount(tokens, minlength=len(logits))
    assert np.abs(counts - 400 * expected).max() <= 1.001
    np.testing.assert_allclose(logprobs, np.log(expected[tokens]), atol=1e-4)


def test_top_p_keeps_the_fewest_tokens_that_hold_it():
    logits = np.log(np.array([0.1, 0.5, 0.3, 0.1], np.float32)).tolist()
    for top_p, kept in ((0.45, {1}), (0.7, {1, 2}), (0.85, {0, 1, 2}), (1.0, {0, 1, 2, 3})):
        tokens, logprobs = drawn(logits, (np.arange(100) + 0.5) / 100, Sampling(top_p=top_p))
        assert set(tokens.tolist()) == kept
        mass = sum(np.exp(logits[token]) for token in kept)
        np.testing.assert_allclose(logprobs, np.array(logits)[tokens] - np.log(mass), atol=1e-5)


def test_min_p_keeps_what_is_that_many_times_as_likely_as_the_likeliest():
    logits = np.log(np.array([0.1, 0.5, 0.3, 0.1], np.float32)).tolist()
    for min_p, kept in ((0.0, {0, 1, 2, 3}), (0.19, {0, 1, 2, 3}), (0.21, {1, 2}), (0.59, {1, 2}), (0.61, {1}), (0.99, {1})):
        tokens, logprobs = drawn(logits, (np.arange(100) + 0.5) / 100, Sampling(min_p=min_p))
        assert set(tokens.tolist()) == kept
        mass = sum(np.exp(logits[token]) for token in kept)
        np.testing.assert_allclose(logprobs, np.array(logits)[tokens] - np.log(mass), atol=1e-5)


def test_min_p_is_taken_at_the_temperature_of_the_row():
    logits = np.log(np.array([0.6, 0.3, 0.1], np.float32)).tolist()  # at temperature 2 the ratios are 0.71 and 0.41
    for temperature, kept in ((1.0, {0}), (2.0, {0, 1})):
        tokens, _ = drawn(logits, (np.arange(100) + 0.5) / 100, Sampling(temperature=temperature, min_p=0.6))
        assert set(tokens.tolist()) == kept


def test_rows_without_min_p_are_drawn_as_if_no_row_had_one():
    generator = torch.Generator().manual_seed(0)
    logits, uniforms = torch.randn(6, 40, generator=generator), torch.rand(6, dtype=torch.float64, generator=generator)
    cut = [Sampling(top_k=5), Sampling(top_p=0.8), Sampling(), Sampling(top_k=7, top_p=0.6), Sampling(temperature=0.0), Sampling(top_k=3)]
    mixed = [*cut[:5], Sampling(min_p=0.5)]
    alone, beside = (draw(logits, uniforms, RowSettings.of(samplings, CPU)) for samplings in (cut, mixed))
    for one, other in zip(alone, beside, strict=True):
        assert torch.equal(one[:5], other[:5])


def test_top_p_acts_on_what_top_k_left():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32)).tolist()
    tokens, _ = drawn(logits, (np.arange(100) + 0.5) / 100, Sampling(top_k=2, top_p=0.55))
    assert set(tokens.tolist()) == {0}, "0.4 of 0.7 is 0.57"


def test_rows_of_one_batch_keep_their_own_settings():
    samplings = [Sampling(), Sampling(temperature=0.0), Sampling(temperature=0.5, top_k=3), Sampling(temperature=1.3), Sampling(top_p=0.6)]
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    uniforms = torch.linspace(0.1, 0.9, 5, dtype=torch.float64)
    tokens, logprobs = draw(logits, uniforms, RowSettings.of(samplings, CPU))
    for row, sampling in enumerate(samplings):
        alone = draw(logits[row : row + 1], uniforms[row : row + 1], RowSettings.of([sampling], CPU))
        assert tokens[row] == alone[0][0]
        assert abs(float(logprobs[row] - alone[1][0])) < 1e-6
    assert tokens[1] == logits[1].argmax()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60))
def test_a_token_without_probability_is_never_drawn(position):
    logits = [-1e4] * 62
    logits[position] = 0.0
    tokens, logprobs = drawn(logits, [0.0, 0.25, 0.5, 0.999, 1.0 - 2.0**-40], Sampling())
    assert set(tokens.tolist()) == {position}
    assert np.isfinite(logprobs).all()


@settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.integers(0, 2**40)] * 4))
def test_blocks_are_the_stream_in_order(noise):
    stream = NoiseStream(noise)
    read = np.concatenate([stream.next_block() for _ in range(3)])
    expected = np.random.Generator(np.random.Philox(np.random.SeedSequence(noise))).random(3 * BLOCK)
    np.testing.assert_allclose(read, expected, atol=1e-11)
    assert len({NoiseStream((*noise[:3], noise[3] + other)).next_block()[0] for other in range(4)}) == 4


def test_token_t_is_drawn_with_the_streams_t_th_number(qwen2, backend, plain, prompts, requests_of, drain):
    engine, model = backend(qwen2), plain(qwen2)
    requests = requests_of(prompts([4]), [2], Sampling(max_new_tokens=BLOCK + 20), seed=11)
    first_to_end = requests_of(prompts([4]), [1], Sampling(max_new_tokens=3), seed=12, name="short-")
    engine.submit([*first_to_end, *requests])
    finished = drain(engine)
    for request in requests:
        tokens = finished[request.request_id].token_ids
        assert len(tokens) == BLOCK + 20, "long enough to need a second block, after a row moved"
        ids = torch.tensor(np.concatenate([request.token_ids, tokens]).astype(np.int64))[None]
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[0, len(request.token_ids) - 1 : -1].double()
        cumulative = torch.softmax(logits, -1).cumsum(-1).numpy()
        uniforms = np.random.Generator(np.random.Philox(np.random.SeedSequence(request.noise))).random(len(tokens))
        expected = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(-1)
        np.testing.assert_array_equal(tokens, expected)
