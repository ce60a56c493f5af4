"""The parts of the vllm backend that need no engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rlcore_plugin_serving.checkpoint import HEAD, CheckpointShapes, read_shapes
from rlcore_plugin_serving.incoming_weights import IncomingWeights, mapped
from rlcore_plugin_serving.partial_completions import NewTokens, PartialCompletion, seed_of
from rlcore_plugin_vllm import CAPABILITIES, rlcore_register_inference_backends
from rlcore_plugin_vllm.options import VllmOptions

from rlcore.api import ConfigError, FinishReason, Request, Sampling, Snapshot, Tensor, WeightsError
from rlcore.testing import FakeTokenizer

TOKENIZER = FakeTokenizer(["a", "b", "ab", "", "é"])  # ids 5 to 9
EMBEDDING = "model.embed_tokens.weight"


def snapshot(**shapes: tuple[int, ...]) -> Snapshot:
    """Version 1, of zeros; underscores of a name stand for dots."""
    named = {name.replace("__", "."): np.zeros(shape, np.float32) for name, shape in shapes.items()}
    return Snapshot.of(1, {name: Tensor(dtype="float32", shape=array.shape, data=array) for name, array in named.items()})


def answer(*stop: str) -> PartialCompletion:
    return PartialCompletion(Request(request_id="r", token_ids=[2], sampling=Sampling(stop=stop)))


def add(one: PartialCompletion, *tokens: int) -> bool:
    return one.add(NewTokens("r", tokens, [-1.0] * len(tokens), [0] * len(tokens)), TOKENIZER)


def test_the_spec_is_read_without_the_engine_and_without_torch() -> None:
    code = (
        "import sys, rlcore_plugin_vllm as p; p.rlcore_register_inference_backends(); print(sorted({'torch', 'vllm'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    [spec] = rlcore_register_inference_backends()
    assert (spec.requires_module, spec.capabilities) == ("vllm", CAPABILITIES)


def test_options_of_the_engine_are_kept_for_it_to_judge() -> None:
    assert VllmOptions(engine={"block_size": 32, "no_such_thing": 1}).engine == {"block_size": 32, "no_such_thing": 1}
    with pytest.raises(ValueError, match="max_num_seqs"):
        VllmOptions(max_num_seqs=0)


def test_seeds_of_neighbouring_requests_are_far_apart() -> None:
    seeds = {seed_of((0, 0, prompt, rollout)) for prompt in range(64) for rollout in range(64)}
    assert len(seeds) == 64 * 64
    assert not {seed + 1 for seed in seeds} & seeds
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of((0, 0, 0, 0)) != seed_of((0, 0, 0, 2**32))


@pytest.mark.parametrize(
    ("stop", "tokens", "ends_at"),
    [
        (("ab",), (5, 5, 6, 5), 2),
        (("ab",), (5, 8, 8, 8, 8, 8, 8, 8, 8, 8, 6), 10),
        (("bab",), (7, 7), 1),
        (("é",), (5, 9), 1),
        (("b", "aa"), (5, 5), 1),
        (("ba",), (5, 6), None),
        ((), (5, 6), None),
    ],
)
def test_a_stop_string_ends_an_answer_at_the_token_that_completes_it(stop, tokens, ends_at) -> None:
    one = answer(*stop)
    ends = [place for place, token in enumerate(tokens) if add(one, token)]
    assert ends[:1] == ([] if ends_at is None else [ends_at])


def test_tokens_after_a_stop_string_are_dropped() -> None:
    one = answer("ab")
    assert add(one, 5, 6, 5, 5)
    completion = one.completion(FinishReason.STOP)
    assert completion.token_ids.tolist() == [5, 6]
    assert completion.versions.tolist() == [0, 0]


def test_versions_may_come_after_the_tokens_and_for_more_of_them() -> None:
    one = answer("ab")
    assert one.add(NewTokens("r", [5, 6], [-1.0, -2.0]), TOKENIZER)
    assert not one.add(NewTokens("r", [5], [-3.0]), TOKENIZER)
    assert not one.add(NewTokens("r", versions=[4, 5, 5], finish="abort"), TOKENIZER)
    completion = one.completion(FinishReason.STOP)
    assert completion.token_ids.tolist() == [5, 6]
    assert completion.versions.tolist() == [4, 5]


def test_a_manifest_must_be_the_models_tensors() -> None:
    shapes = {"a.weight": (2, 3), "b.weight": (4,)}
    CheckpointShapes(shapes, tied=False).check(1, snapshot(a__weight=(2, 3), b__weight=(4,)).manifest())
    for sent, word in [
        ({"a__weight": (2, 3)}, "lacks tensor 'b.weight'"),
        ({"a__weight": (2, 3), "b__weight": (4,), "c": (1,)}, "has tensor 'c'"),
        ({"a__weight": (3, 2), "b__weight": (4,)}, r"'a.weight' has shape \[3, 2\], the model's has \[2, 3\]"),
    ]:
        with pytest.raises(WeightsError, match=word):
            CheckpointShapes(shapes, tied=False).check(1, snapshot(**sent).manifest())


def test_a_tied_head_may_be_left_out_and_may_come() -> None:
    shapes = {EMBEDDING: (4, 2)}
    tied = CheckpointShapes(shapes, tied=True)
    tied.check(1, snapshot(model__embed_tokens__weight=(4, 2)).manifest())
    tied.check(1, snapshot(model__embed_tokens__weight=(4, 2), lm_head__weight=(4, 2)).manifest())
    assert tied.head_of == EMBEDDING
    with pytest.raises(WeightsError, match=HEAD):
        CheckpointShapes(shapes, tied=False).check(1, snapshot(model__embed_tokens__weight=(4, 2), lm_head__weight=(4, 2)).manifest())


def test_a_tensor_comes_once_and_as_it_was_announced() -> None:
    sent = snapshot(a=(2,), b=(3,))
    first, second = sent.buckets(1)
    incoming = IncomingWeights(1, sent.manifest())
    incoming.take(first)
    with pytest.raises(WeightsError, match="'a', which is not due"):
        incoming.take(first)
    with pytest.raises(WeightsError, match="'b' did not come"):
        incoming.whole()
    incoming.take(second)
    assert sorted(incoming.whole()) == ["a", "b"]
    other = next(snapshot(a=(5,)).buckets(1))
    with pytest.raises(WeightsError, match=r"'a' came as float32 \[5\] and was announced as float32 \[2\]"):
        IncomingWeights(1, sent.manifest()).take(other)


def test_another_process_maps_what_has_arrived_and_a_repeated_tensor_twice() -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3, dtype=np.uint16), "c": np.zeros((0, 2), np.float32)}
    dtypes = {"a": "float32", "b": "bfloat16", "c": "float32"}
    sent = Snapshot.of(2, {name: Tensor(dtype=dtypes[name], shape=array.shape, data=array) for name, array in arrays.items()})
    incoming = IncomingWeights(2, sent.manifest())
    for bucket in sent.buckets(1):
        incoming.take(bucket)
    incoming.repeat("head", "a")
    incoming.repeat("a", "b")  # which came itself
    here, there = incoming.whole(), mapped(incoming.path, [tuple(place) for place in incoming.places()])
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in here.items()} == {
        name: (tensor.dtype, tensor.shape) for name, tensor in there.items()
    }
    assert all(tensor.equal(there[name]) for name, tensor in here.items())
    assert here["head"].numpy().tolist() == arrays["a"].tolist()
    there["a"][0] = 7.0
    assert here["a"].numpy().tolist() == arrays["a"].tolist()
    path = incoming.path
    del incoming
    with pytest.raises(FileNotFoundError):
        mapped(path, [])


def test_shapes_are_read_from_the_headers_of_a_checkpoint(tmp_path) -> None:
    header = json.dumps({"__metadata__": {}, "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert read_shapes(tmp_path) == {"a": (2, 1)}
    (tmp_path / "model-2.safetensors").write_bytes(b"no such file")
    with pytest.raises(ConfigError, match=r"model-2\.safetensors is not a readable safetensors file"):
        read_shapes(tmp_path)


def test_a_model_without_a_checkpoint_is_refused_in_one_sentence(tmp_path) -> None:
    with pytest.raises(ConfigError, match="holds no safetensors file"):
        read_shapes(tmp_path)


def test_only_the_files_that_an_index_names_belong_to_the_model(tmp_path: Path) -> None:
    for file, name in (("a.safetensors", "one"), ("stray.safetensors", "other")):
        header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        (tmp_path / file).write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert read_shapes(tmp_path) == {"one": (2,), "other": (2,)}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"one": "a.safetensors"}}), encoding="utf-8")
    assert read_shapes(tmp_path) == {"one": (2,)}
    index.write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not an index of safetensors files"):
        read_shapes(tmp_path)
