"""Several ranks of the torch backend: real processes over gloo. That their update is one rank's stands in tests/contracts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.ranks import TorchRanks
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import ConfigError, OptimizerSettings, RunError, TrainingContext
from rlcore.testing.training.rank_processes import run_ranks

pytestmark = pytest.mark.full


def test_gradients_metrics_and_arrays_of_all_ranks_come_together() -> None:
    """1 + 2 + 3 of each gradient; 2 + 3 where rank 0 had none; nothing where nobody had one."""
    answers = run_ranks("torch_rank_bodies:sums", 3)
    for answer in answers:
        expected = [np.full((2, 3), 6.0), np.full(5, 0.5), np.full(2, 0.06), np.full((4, 4), 0.006)]
        for got, value in zip(answer["grads"][:4], expected, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-6)
        assert answer["grads"][2].dtype == np.float64
        assert answer["grads"][4] is None
        assert answer["metrics"] == {"loss": 4.5, "only/0": 1.0, "only/1": 1.0, "only/2": 1.0}
        assert answer["arrays"] == [[], [[1.0, 1.0]], [[2.0, 2.0], [2.0, 2.0]]]
        assert not answer["left"]
        assert answer["seconds"] > 0
        assert all(np.array_equal(one, other) for one, other in zip(answer["grads"][:4], answers[0]["grads"][:4], strict=True))


@pytest.mark.parametrize("kind", ["leaves", "is silent", "never comes"])
def test_a_rank_that_is_not_there_is_named_on_the_others(kind: str, tmp_path: Path) -> None:
    answers = run_ranks("torch_rank_bodies:mishap", 3, kind, str(tmp_path))
    for rank in (0, 2):
        assert isinstance(answers[rank], RunError)
        assert f"trainer rank {rank} of 3 gave up while" in str(answers[rank])
        assert "rank 1 did not come within" in str(answers[rank])


@pytest.mark.interpreter
def test_a_rank_that_nobody_closed_ends_its_threads_before_the_interpreter(tmp_path: Path) -> None:
    """Else one of them may abort the process: see ``TorchRanks.open``."""
    run_ranks("torch_rank_bodies:never_closed", 2, str(tmp_path), timeout=240)
    for rank in range(2):
        before, during, after = json.loads((tmp_path / f"threads-{rank}.json").read_text())
        assert during.keys() > before.keys(), "the group has threads of its own"
        assert not {name for number, name in after.items() if number in during.keys() - before.keys()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two tiny models that differ in one number."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2}
    special = {"num_key_value_heads": 1, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": True}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, **special, initializer_range=0.2))
    folder = tmp_path_factory.mktemp("models")
    model.save_pretrained(folder / "one")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[3, 5] += 1e-3
    model.save_pretrained(folder / "other")
    return str(folder / "one"), str(folder / "other")


@pytest.fixture(scope="module")
def found(models: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks of one session found."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "model").mkdir()
    (folder / "file").write_text("in the way")
    context = TrainingContext(
        model=models[0],
        optimizer=OptimizerSettings(learning_rate=1e-2, total_steps=10),
        rollouts_per_forward=2,
        tokens_per_forward=1000,
        prompts_per_slice=10,
        device="cpu",
    )
    return run_ranks("torch_rank_bodies:session", 2, context, models[1], str(folder))


def test_time_spent_together_is_booked(found: list[dict[str, Any]]) -> None:
    for answer in found:
        before, metrics, after = answer["timings"]
        assert before["exchange"] > 0  # comparing weights in setup
        assert set(after) == {"forward", "backward", "optimizer", "exchange"}
        assert metrics["grad_norm"] > 0
    assert found[0]["timings"][1] == found[1]["timings"][1]


def test_an_error_in_one_share_is_raised_on_every_rank_and_names_it(found: list[dict[str, Any]]) -> None:
    """And both go on afterwards in step, if the caller wants to."""
    assert found[0]["failed"] == "RunError: trainer rank 1 failed: ZeroDivisionError: planted"
    assert found[1]["failed"] == "ZeroDivisionError: planted"
    assert found[0]["straight"] == found[1]["straight"]
    assert not any(answer["left"] for answer in found)


def test_rank_0_saves_and_all_return_when_it_is_whole(found: list[dict[str, Any]]) -> None:
    assert {"config.json", "model.safetensors", "trainer.pt"} <= set(found[1]["files"])
    assert found[0]["files"] == found[1]["files"]
    assert found[0]["unsaved"].startswith("FileExistsError")
    assert found[1]["unsaved"].startswith("RunError: trainer rank 0 failed: FileExistsError")


def test_ranks_with_different_weights_are_refused(found: list[dict[str, Any]]) -> None:
    for answer in found:
        words = "RunError: trainer rank 1 holds other weights than rank 0 (tensor 'model.layers.0.mlp.up_proj.weight')"
        assert answer["other"].startswith(words)


@pytest.mark.fast
def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="rendezvous 'here' of 2 trainer ranks is not an address; it must be tcp://host:port"):
        TorchRanks(layout=Layout(size=2), rendezvous="here").open()


@pytest.mark.fast
def test_one_rank_makes_no_group() -> None:
    ranks = TorchRanks()
    ranks.open()
    values = np.ones(2)
    assert ranks.gather(values)[0] is values
    assert ranks.sum_metrics(lambda: {"loss": 1.0}) == {"loss": 1.0}
    assert not torch.distributed.is_initialized()
    ranks.close()
    assert ranks.seconds == 0.0
