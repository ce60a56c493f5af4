"""How requests share the engine: more than fit at once, more than the cache holds. No draw notices."""

from __future__ import annotations

import numpy as np
import pytest

from rlcore.api import ConfigError, RunError, Snapshot, Tensor
from rlcore.testing import update_engine

TOLERANCE = 1e-4


def long_requests(ask, count: int, length: int = 300, new: int = 6):
    """Prompts of their own, so that the prefix cache saves nothing."""
    return [
        ask(f"r{n}", [3 + (place * (n + 1)) % 37 for place in range(length)], noise=n, max_new_tokens=new, temperature=1.3)
        for n in range(count)
    ]


def assert_alike(answers, others) -> None:
    assert set(answers) == set(others)
    for name, answer in answers.items():
        assert answer.token_ids.tolist() == others[name].token_ids.tolist(), name
        assert np.allclose(answer.logprobs, others[name].logprobs, atol=TOLERANCE), name


def test_prompts_of_more_tokens_than_a_step_takes_are_drawn_as_alone(backend, ask, answered):
    requests = long_requests(ask, 12)
    alone = backend(max_tokens=512, max_num_seqs=1)
    one_by_one = {name: answer for request in requests for name, answer in answered(alone, [request]).items()}
    assert_alike(answered(backend(max_tokens=512, max_num_seqs=16, engine={"max_num_batched_tokens": 700}), requests), one_by_one)


def test_requests_that_the_cache_cannot_hold_together_are_drawn_as_alone(backend, ask, answered):
    requests = long_requests(ask, 6, length=120, new=60)  # two blocks of 128 tokens each, soon
    block = 128 * 2 * 2 * 2 * 32 * 4  # tokens, keys and values, layers, KV heads, head_dim, bytes
    small = backend(max_tokens=256, kv_cache_memory_bytes=5 * block)
    assert_alike(answered(small, requests), answered(backend(max_tokens=256), requests))


def test_a_request_id_is_used_once_while_it_is_in_flight(shared, ask):
    engine = shared
    engine.submit([ask("r0", [3, 5])])
    with pytest.raises(RunError, match="r0 is in flight already"):
        engine.submit([ask("r1", [3, 5]), ask("r0", [3, 5])])
    while not (answers := engine.poll(1.0)):
        pass
    assert [answer.request_id for answer in answers] == ["r0"]


@pytest.mark.parametrize(
    ("tokens", "sampling", "words"),
    [
        ([], {}, "has no context"),
        ([3] * 64, {}, "64 tokens, but prompt and response together may have only 64"),
        ([3, 4000], {}, "token 4000 is not one of the model's 42"),
        ([3], {"max_new_tokens": 0}, "at least 1"),
        ([3], {"stop": ("",)}, "stop strings must not be empty"),
        ([3], {"temperature": 0.005}, "vLLM samples at 0.01 to 2"),
        ([3], {"temperature": 2.5}, "vLLM samples at 0.01 to 2"),
    ],
)
def test_what_cannot_be_served_is_refused_and_nothing_is_queued(tokens, sampling, words, shared, ask):
    with pytest.raises(ConfigError, match=words):
        shared.submit([ask("good", [3, 5]), ask("bad", tokens, **sampling)])
    assert shared.poll(0.0) == []


def test_a_request_that_is_cancelled_twice_comes_back_once(shared, ask):
    engine = shared
    engine.submit([ask("r0", [3, 5]), ask("r1", [3, 7])])
    engine.cancel(["r0", "r0"])
    finished = []
    while len(finished) < 2:
        finished += engine.poll(1.0)
    assert sorted(answer.request_id for answer in finished) == ["r0", "r1"]
    assert engine.poll(0.0) == []


@pytest.mark.parametrize(("tokens", "words"), [([3, 4000], "token 4000 is not one of"), ([3] * 65, "65 tokens, but prompt")])
def test_what_cannot_be_scored_is_refused_and_requests_go_on(tokens, words, shared, ask):
    engine = shared
    engine.submit([ask("r0", [3, 5])])
    with pytest.raises(ConfigError, match=words):
        engine.score(np.array(tokens, np.int32))
    while not engine.poll(1.0):
        pass


def test_weights_that_are_no_numbers_are_said_and_the_other_answers_of_the_step_come(backend, ask, snapshot):
    engine = backend()
    broken = {
        name: Tensor(dtype="float32", shape=tensor.shape, data=np.full(tensor.shape, np.nan, np.float32))
        for name, tensor in snapshot(1).tensors.items()
    }
    for version, weights in ((1, Snapshot.of(1, broken)), (2, snapshot(2))):
        update_engine(engine, weights)
        engine.submit([ask(f"{version}-{one}", [3, 5 + one], max_new_tokens=2) for one in range(3)])
        if version == 1:
            with pytest.raises(RunError, match="logits that are not finite; training diverged"):
                all(engine.poll(1.0) == [] for _ in range(100))
    finished = []
    while len(finished) < 3:
        finished += engine.poll(1.0)
    assert {answer.request_id for answer in finished} == {"2-0", "2-1", "2-2"}


def test_an_answer_ends_where_prompt_and_answer_are_max_tokens_long(shared, ask, answered):
    request = ask("r0", [3] * 60, max_new_tokens=50, temperature=1.5)
    assert len(answered(shared, [request])["r0"].token_ids) <= 4
    assert shared.score(np.array([3] * 64, np.int32)).shape == (63,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": {"no_such": 1}}, r"inference\.options\.engine\.no_such is not an argument"),
        ({"engine": {"block_sise": 16}}, r"did you mean block_size\?"),
        ({"engine": {"data_parallel_size": 2}}, "use --num-inferencer"),
        ({"engine": {"pipeline_parallel_size": 2}}, r"write it as inference\.options\.pipeline_parallel_size"),
        ({"enforce_eager": False}, "does not compile models on the CPU"),
        ({"pipeline_parallel_size": 2}, "on the CPU vLLM's stages do not pass tensors on"),
        ({"tensor_parallel": 2, "own_process": False}, "own_process is false"),
        ({"tensor_parallel": 3}, "vLLM cannot create an engine for model"),
        ({"engine": {"seed": 3}}, "rlcore sets this argument of vLLM itself; use --seed"),
        ({"engine": {"logprobs_mode": "raw_logprobs"}}, "rlcore sets this argument of vLLM itself; it cannot be changed"),
        ({"engine": {"max_num_seqs": 3}}, r"write it as inference\.options\.max_num_seqs"),
        ({"engine": {"max_num_batched_tokens": 8}}, "vLLM cannot create an engine for model"),
        ({"engine": {"block_size": "many"}}, "vLLM cannot create an engine for model"),
    ],
)
def test_an_option_that_the_engine_does_not_take_is_one_sentence(options, words, backend):
    with pytest.raises(ConfigError, match=words) as refused:
        backend(**options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("given", [{"dtype": "float16"}, {"device": "cuda"}], ids=str)
def test_what_the_capabilities_leave_out_is_refused(given, backend):
    with pytest.raises(
        ConfigError, match=r"this version of the vllm backend|not supported by the vllm backend|vLLM of this environment is built for cpu"
    ):
        backend(**given)


def test_updates_in_a_row_serve_the_last_one(backend, snapshot):
    engine, sequence = backend(), np.arange(3, 30, dtype=np.int32)
    first = engine.score(sequence)
    for version in range(1, 12):
        assert update_engine(engine, snapshot(version, seed=version % 2)) == version
        assert np.allclose(engine.score(sequence), first, atol=TOLERANCE) is (version % 2 == 0)
