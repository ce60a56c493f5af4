"""What the engine says of its tokens is true of a plain forward pass: at any temperature, however the sampler cuts, after an update too."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlcore.testing import update_engine

TOLERANCE = 1e-4
LONG = [3 + place % 37 for place in range(300)]  # more than two blocks of 128 tokens, which the prefix cache keeps


def distributions(model, request, tokens) -> np.ndarray:
    """float64[T, V]: log probabilities of a forward pass of transformers, cut and scaled as the request says."""
    ids = torch.tensor([*request.token_ids.tolist(), *tokens.tolist()])[None]
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(request.token_ids) - 1 : -1].double()
    sampling = request.sampling
    logprobs = torch.log_softmax(logits / (sampling.temperature or 1.0), dim=-1)
    if sampling.temperature:
        for row in logprobs:
            cut(row, sampling)
    return torch.log_softmax(logprobs, dim=-1).numpy()


def cut(row: torch.Tensor, sampling) -> None:
    """-inf for what min-p, then top-k, then top-p of what is left, leave out."""
    row[row < row.max() + np.log(sampling.min_p or 1e-300)] = -torch.inf
    if sampling.top_k:
        row[row < row.topk(sampling.top_k).values[-1]] = -torch.inf
    order = row.argsort(descending=True)
    before = row[order].softmax(-1).cumsum(-1) - row[order].softmax(-1)
    row[order[before > sampling.top_p]] = -torch.inf


def worst_gap(model, requests, answers) -> float:
    """The largest difference of a reported log probability."""
    gaps = []
    for request in requests:
        tokens, reported = answers[request.request_id].token_ids, answers[request.request_id].logprobs
        gaps.append(np.abs(distributions(model, request, tokens)[np.arange(len(tokens)), tokens] - reported).max())
    return float(max(gaps))


@pytest.mark.parametrize("how", [{}, {"top_p": 0.8}, {"top_k": 5}, {"min_p": 0.1}, {"top_p": 0.7, "top_k": 9, "min_p": 0.02}], ids=str)
def test_they_are_those_of_the_distribution_that_was_sampled(how, model, shared, ask, answered):
    requests = [
        ask(f"{temperature}-{n}", [3, 5, 4 + n], noise=n, temperature=temperature, max_new_tokens=12, **how)
        for temperature in (0.5, 1.0, 1.3)
        for n in range(4)
    ]
    assert worst_gap(model(0), requests, answered(shared, requests)) <= TOLERANCE


def test_greedy_beside_sampled_ones_is_the_likeliest_token_at_temperature_one(model, shared, ask, answered):
    requests = [ask("greedy", [3, 5, 4], temperature=0.0, max_new_tokens=12, top_p=0.5, min_p=0.3)]
    requests += [ask(f"r{n}", [3, 9, 4], noise=n, temperature=0.7, max_new_tokens=12) for n in range(3)]
    answers = answered(shared, requests)
    assert worst_gap(model(0), requests, answers) <= TOLERANCE
    tokens = answers["greedy"].token_ids
    assert distributions(model(0), requests[0], tokens).argmax(-1).tolist() == tokens.tolist()


def test_a_prompt_of_the_cache_is_computed_anew_after_an_update(model, backend, ask, answered, snapshot):
    engine = backend(max_tokens=512)
    for version in (0, 1, 2):
        if version:
            update_engine(engine, snapshot(version))
        requests = [ask(f"v{version}-{n}", LONG, noise=n, max_new_tokens=4) for n in range(4)]
        answers = answered(engine, requests) | answered(engine, later := [ask(f"w{version}", LONG, noise=9, max_new_tokens=4)])
        assert worst_gap(model(version), [*requests, *later], answers) <= TOLERANCE


def test_what_was_in_flight_goes_on_under_the_new_weights_alone(model, backend, ask, snapshot):
    engine, request = backend(max_tokens=512), ask("r0", LONG, max_new_tokens=40, temperature=1.3)
    engine.submit([request])
    for _ in range(5):
        assert engine.poll(0.0) == []
    update_engine(engine, snapshot(1))
    while not (answers := engine.poll(1.0)):
        pass
    [answer] = answers
    old = int((answer.versions == 0).sum())
    assert 1 <= old <= 5
    assert answer.versions.tolist() == [0] * old + [1] * (len(answer.versions) - old)
    tokens = answer.token_ids
    drawn = [distributions(model(version), request, tokens)[np.arange(len(tokens)), tokens] for version in (0, 1)]
    expected = np.concatenate([drawn[0][:old], drawn[1][old:]])
    assert len(expected) > old, "the answer ended before the update: take another noise"
    assert np.abs(expected - answer.logprobs).max() <= TOLERANCE


def test_an_update_to_the_same_weights_changes_no_draw(backend, ask, answered, snapshot):
    requests = [ask(f"r{n}", [3, 5, 4 + n], noise=n, max_new_tokens=30) for n in range(4)]
    engine = backend()
    whole = answered(engine, requests)
    engine.submit(requests)
    early = engine.poll(0.0)
    update_engine(engine, snapshot(7, seed=0))
    answers = {completion.request_id: completion for completion in early}
    while len(answers) < len(requests):
        answers |= {completion.request_id: completion for completion in engine.poll(1.0)}
    assert any(7 in answer.versions and 0 in answer.versions for answer in answers.values())
    for name, answer in answers.items():
        assert answer.token_ids.tolist() == whole[name].token_ids.tolist()
        assert np.allclose(answer.logprobs, whole[name].logprobs, atol=TOLERANCE)


def test_a_head_that_is_sent_beside_its_embedding_must_be_the_same(backend, snapshot):
    from dataclasses import replace

    from rlcore.api import Snapshot, WeightsError

    engine, sent = backend(), snapshot(1)
    embedding = sent.tensors["model.embed_tokens.weight"]
    assert update_engine(engine, Snapshot.of(1, {**sent.tensors, "lm_head.weight": embedding})) == 1
    with pytest.raises(WeightsError, match=r"lm_head\.weight"):
        update_engine(engine, Snapshot.of(2, {**sent.tensors, "lm_head.weight": replace(embedding, data=embedding.data + 1)}))
    assert engine.score(np.array([3, 5, 4], np.int32)).shape == (2,)


def test_weights_that_are_not_finite_end_the_run_in_one_sentence(backend, ask, answered, snapshot):
    from dataclasses import replace

    from rlcore.api import RunError, Snapshot

    engine, sent = backend(), snapshot(1)
    norm = sent.tensors["model.norm.weight"]
    spoilt = Snapshot.of(1, {**sent.tensors, "model.norm.weight": replace(norm, data=norm.data * np.float32("nan"))})
    update_engine(engine, spoilt)
    with pytest.raises(RunError, match="version 1 gives logits that are not finite"):
        answered(engine, [ask("r0", [3, 5])])
