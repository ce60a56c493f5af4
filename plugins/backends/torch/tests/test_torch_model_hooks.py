"""Model hooks in the torch backend: what they freeze stays, what they set is trained from, and what others could not read is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.layout import Layout
from starting import started
from torch_hook_bodies import NewNorms, frozen
from torch_layout_bodies import context_of, many_prompts, masters
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from rlcore.api import ConfigError, LoraSettings, ModelHook, ModelRole
from rlcore.testing.training.fake_model_hook import FakeModelHook
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.training.rank_processes import run_ranks
from tests.tiny_qwen2 import SIZES

EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    AutoModelForCausalLM.from_config(Qwen2Config(**SIZES, tie_word_embeddings=False)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tied")
    AutoModelForCausalLM.from_config(Qwen2Config(**SIZES, tie_word_embeddings=True)).save_pretrained(folder)
    return str(folder)


@contextmanager
def trainer(model: str, hook: ModelHook | None, **changes: Any) -> Iterator[TorchBackend]:
    context = replace(context_of(model, Layout(), 0, "", "float32"), model_hook=hook, **changes)
    with closing(started(context)) as backend:
        yield backend


def step(backend: TorchBackend, seed: int = 0) -> dict[str, float]:
    return dict(backend.update(many_prompts(seed), PlainObjective()))


def test_a_frozen_embedding_stays_and_the_rest_trains(model: str, tmp_path: Path) -> None:
    with trainer(model, FakeModelHook()) as backend:
        before = masters(backend)
        norm = step(backend)["grad_norm"]
        after = masters(backend)
        assert [name for name in before if np.array_equal(before[name], after[name])] == [EMBEDDING]
        assert not [name for name in backend.optimizer.moments() if EMBEDDING in name]
        backend.save_model(tmp_path)
        assert EMBEDDING in {info.name for info in backend.weight_source().manifest().tensors}
    read = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(np.array_equal(read[name].numpy(), weight) for name, weight in after.items())
    with trainer(model, None) as backend:
        assert norm < step(backend)["grad_norm"], "the frozen gradient counts"


def test_a_head_that_is_the_embedding_stays_too(tied: str) -> None:
    with trainer(tied, FakeModelHook()) as backend:
        before = masters(backend)
        step(backend)
        after = masters(backend)
    assert [name for name in before if np.array_equal(before[name], after[name])] == [EMBEDDING]


def test_the_reference_is_the_policy_as_it_was_at_the_start(model: str) -> None:
    with trainer(model, NewNorms()) as backend:
        before = backend.logprobs(many_prompts(0), ModelRole.POLICY)
        step(backend)
        torch.rand(5)
        assert np.array_equal(backend.logprobs(many_prompts(0), ModelRole.REFERENCE), before)
    with trainer(model, None) as backend:
        assert not np.allclose(backend.logprobs(many_prompts(0), ModelRole.POLICY), before, atol=1e-3)


def test_a_reference_that_the_run_names_keeps_its_weights(model: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(Qwen2Config(**SIZES, tie_word_embeddings=False)).save_pretrained(tmp_path / "other")
    other = str(tmp_path / "other")
    with trainer(other, None) as backend:
        due = backend.logprobs(many_prompts(0), ModelRole.POLICY)
    with trainer(model, NewNorms(), reference=other) as backend:
        assert np.array_equal(backend.logprobs(many_prompts(0), ModelRole.REFERENCE), due)
        backend.save_model(tmp_path / "model")
        backend.save(tmp_path / "trainer").result()
    with trainer(str(tmp_path / "model"), NewNorms(), reference=other, resumed=True) as backend:
        backend.load(tmp_path / "trainer")
        assert np.array_equal(backend.logprobs(many_prompts(0), ModelRole.REFERENCE), due)


def test_a_resumed_run_has_the_weights_of_its_checkpoint(model: str, tmp_path: Path) -> None:
    with trainer(model, NewNorms()) as backend:
        step(backend)
        backend.save_model(tmp_path / "model")
        backend.save(tmp_path / "trainer").result()
        straight = step(backend, 1), masters(backend), backend.logprobs(many_prompts(0), ModelRole.REFERENCE)
    with trainer(str(tmp_path / "model"), NewNorms(), reference=model, resumed=True) as backend:
        backend.load(tmp_path / "trainer")
        resumed = step(backend, 1), masters(backend), backend.logprobs(many_prompts(0), ModelRole.REFERENCE)
    assert {**straight[0], "mfu": 0} == {**resumed[0], "mfu": 0}
    assert all(np.array_equal(resumed[1][name], weight) for name, weight in straight[1].items())
    assert np.array_equal(resumed[2], straight[2])


def test_the_random_numbers_of_a_run_do_not_depend_on_its_hook(model: str) -> None:
    drawn = []
    for hook in (None, NewNorms()):
        with trainer(model, hook):
            drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


def test_adapters_train_over_a_frozen_model(model: str) -> None:
    lora = LoraSettings(rank=2, alpha=4.0)
    with trainer(model, FakeModelHook(), lora=lora) as backend:
        step(backend)
    with pytest.raises(ConfigError, match=r"model hook NewNorms changes the tensor 'model.layers.0.input_.*', .* --lora-rank 0"):
        trainer(model, NewNorms(), lora=lora).__enter__()


class Scaled(ModelHook):
    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        model.lm_head.register_forward_hook(lambda module, given, out: out * 1.5)
        return model


class Wider(ModelHook):
    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        model.extra = torch.nn.Linear(3, 3)
        return model


class Resized(ModelHook):
    """More tokens than the config says."""

    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        model.resize_token_embeddings(101)
        model.config.vocab_size = 97
        return model


class Still(ModelHook):
    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        return model.requires_grad_(False)


class Infinite(ModelHook):
    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        model.lm_head.weight.data[0, 0] = torch.inf
        return model


class Forgetful(ModelHook):
    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        model.get_input_embeddings().requires_grad_(False)  # type: ignore[return-value]


class Raises(ModelHook):
    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        raise KeyError("head")


@pytest.mark.parametrize(
    ("hook", "says"),
    [
        (Scaled(), "log probabilities differ by .* from those of Qwen2ForCausalLM with the same weights"),
        (Wider(), "its tensor 'extra.bias' is .3,., and in Qwen2ForCausalLM, which its config names, absent; keep the names"),
        (Resized(), "its tensor 'lm_head.weight' is .101, 32., and in Qwen2ForCausalLM, which its config names, .97, 32.; keep"),
        (Still(), "leaves no parameter with requires_grad, so nothing would be trained"),
        (Infinite(), "tensor 'lm_head.weight' holds non-finite values"),
        (Forgetful(), "returned NoneType; apply must return a PreTrainedModel"),
        (Raises(), "failed while changing Qwen2ForCausalLM: KeyError: 'head'"),
    ],
)
def test_a_model_that_others_cannot_read_is_refused(model: str, hook: ModelHook, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^model hook {type(hook).__name__} .*{says}"):
        trainer(model, hook).__enter__()


class Untied(ModelHook):
    """A head of its own, in the config too."""

    def apply(self, model: PreTrainedModel) -> PreTrainedModel:
        config = type(model.config)(**{**model.config.to_dict(), "tie_word_embeddings": False})
        untied = AutoModelForCausalLM.from_config(config)
        weights = model.state_dict()
        untied.load_state_dict({**weights, "lm_head.weight": weights[EMBEDDING]})
        return untied


def test_another_model_may_be_returned(tied: str, tmp_path: Path) -> None:
    with trainer(tied, Untied()) as backend:
        step(backend)
        backend.save_model(tmp_path / "model")
        after = masters(backend)
        probed = backend.probe(np.arange(2, 20, dtype=np.int32))
    assert not np.array_equal(after["lm_head.weight"], after[EMBEDDING])
    with trainer(str(tmp_path / "model"), Untied(), reference=tied, resumed=True) as backend:
        assert np.array_equal(backend.probe(np.arange(2, 20, dtype=np.int32)), probed)


@pytest.mark.parametrize("activations", ["keep", "recompute"])
def test_layers_may_run_again_over_a_frozen_embedding(model: str, activations: str) -> None:
    kept, again = frozen(0, 1, "", Layout(), model), frozen(0, 1, "", Layout(), model, activations)
    assert all(np.array_equal(again["after"][name], weight) for name, weight in kept["after"].items())


@pytest.mark.full
@pytest.mark.timeout(200)
@pytest.mark.parametrize("layout", [Layout(size=2), Layout(size=2, zero=3), Layout(size=2, tensor=2)], ids=str)
def test_two_ranks_freeze_what_one_process_freezes(model: str, layout: Layout) -> None:
    alone = frozen(0, 1, "", Layout(), model)
    for rank in run_ranks("torch_hook_bodies:frozen", layout.size, layout, model, timeout=180.0):
        assert rank["moments"] == alone["moments"]
        assert np.array_equal(rank["after"][EMBEDDING], alone["before"][EMBEDDING])
        assert all(np.allclose(rank["before"][name], weight, atol=0) for name, weight in alone["before"].items()), "the same random numbers"
        assert all(np.allclose(rank["after"][name], weight, atol=2e-5) for name, weight in alone["after"].items())
        norms = [[metrics["grad_norm"] for metrics in who["metrics"]] for who in (rank, alone)]
        assert np.allclose(*norms, rtol=1e-4)
        assert np.allclose(rank["reference"], alone["reference"], atol=1e-4)
