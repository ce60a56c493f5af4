"""The base model: right size, deterministic, stopped half-way."""

from __future__ import annotations

import pytest
import torch
from rlcore_plugin_quickstart.digits_tokenizer import END, build_tokenizer
from rlcore_plugin_quickstart.task import Problem, make_split
from rlcore_plugin_quickstart.warmstart import WarmStart, WarmStartSettings, encode, greedy_accuracy, new_model, warm_start
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rlcore.api import RunError

SHORT = WarmStartSettings(batch_size=32, n_check=48, target=0.0)
EASY = [problem for problem in make_split(0, 900, 30).train if len(problem.digits) == 4]
"""The short problems only: quickly learned."""


def short(seed: int, settings: WarmStartSettings = SHORT) -> WarmStart:
    return warm_start(EASY, build_tokenizer(), seed, settings, lambda line: None)


def test_it_is_a_tiny_qwen2_that_vllm_can_serve() -> None:
    model = new_model(0)
    assert 150_000 < sum(parameter.numel() for parameter in model.parameters()) < 250_000
    assert model.config.hidden_size // model.config.num_attention_heads == 32
    assert (model.config.num_hidden_layers, model.config.vocab_size, model.config.tie_word_embeddings) == (2, 88, True)
    assert model.config.model_type == "qwen2"


def test_one_seed_gives_one_model_and_leaves_the_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    first, second = short(3), short(3)
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.steps == second.steps
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_last_state_below_the_target_is_kept() -> None:
    started = short(0)
    assert started.accuracy <= SHORT.target
    data = encode([problem.solution for problem in EASY[: SHORT.n_check]], build_tokenizer())
    assert greedy_accuracy(started.model, data) == started.accuracy


def test_a_warm_start_that_does_not_get_there_says_so() -> None:
    with pytest.raises(RunError, match=r"did not reach an accuracy of 0\.9 within 4 steps; try another --seed"):
        short(0, WarmStartSettings(max_steps=4, target=0.9))


def test_greedy_accuracy_is_that_of_real_decoding() -> None:
    started = short(1, WarmStartSettings(batch_size=32, n_check=48, target=0.2))
    tokenizer, problems = build_tokenizer(), EASY[:40]
    right = sum(decoded(started.model, tokenizer, problem) == problem.response + END for problem in problems)
    assert 0 < right < len(problems)
    assert greedy_accuracy(started.model, encode([problem.solution for problem in problems], tokenizer)) == pytest.approx(
        right / len(problems)
    )


@torch.no_grad()
def decoded(model: torch.nn.Module, tokenizer: object, problem: Problem) -> str:
    text = f"<|user|>{problem.question}<|end|><|assistant|>"
    ids = tokenizer.encode(text, add_special_tokens=False, return_tensors="pt")  # type: ignore[attr-defined]
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24)  # type: ignore[operator]
    return tokenizer.decode(out[0, ids.shape[1] :])  # type: ignore[attr-defined,no-any-return]


def test_with_a_number_of_steps_it_has_as_many_and_keeps_the_last_state() -> None:
    rates: list[float] = []
    settings = WarmStartSettings(batch_size=32, n_check=48, target=0.0, steps=5, learning_rate=0.006)

    def seen(optimizer: torch.optim.Optimizer, *_: object) -> None:
        rates.append(optimizer.param_groups[0]["lr"])

    hook = register_optimizer_step_pre_hook(seen)
    try:
        started = short(0, settings)
    finally:
        hook.remove()
    assert (started.steps, rates) == (5, pytest.approx([0.005, 0.004, 0.003, 0.002, 0.001]))
    data = encode([problem.solution for problem in EASY[: settings.n_check]], build_tokenizer())
    assert greedy_accuracy(started.model, data) == started.accuracy
