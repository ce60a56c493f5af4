"""Functions and argument names of TRL and verl, given to ``rlcore.train`` as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_adapters.trl_names import translated

from rlcore.api import ConfigError, Message, PluginError, PluginKind, RewardInput
from rlcore.api.commands import Registry

FUNCTIONS = Path(__file__).with_name("trl_functions.py")


def brief(completions: Any, limit: Any, **kwargs: Any) -> list[float | None]:
    """Reward short completions."""
    return [None if one < 0 else float(len(text) <= one) for text, one in zip(completions, limit, strict=True)]


def conversational(completions: Any, **kwargs: Any) -> list[float]:
    return [float(completion[0]["content"] == kwargs["gold"][0]) for completion in completions]


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    return float(ground_truth in solution_str)


def plain(item: RewardInput) -> float:
    return 0.5


def made(function: Any, **options: Any) -> Any:
    registry = Registry.discover()
    name = registry.add(PluginKind.REWARD, function) if callable(function) else function
    model = registry.options_model(PluginKind.REWARD, name)
    return registry.make(PluginKind.REWARD, name, options=None if model is None else model(**options))


def item(text: str, **columns: Any) -> RewardInput:
    return RewardInput(messages=(Message(role="user", content="2 + 3?"),), columns=columns, text=text)


def test_a_function_of_trl_gets_texts_or_messages_as_its_rows_have_them() -> None:
    reward = made(brief)
    assert [reward.score(item("abc", prompt="q", limit=size)).value for size in (2, 3)] == [0.0, 1.0]
    assert not reward.score(item("abc", prompt="q", limit=-1)).in_loss
    assert reward.requires == (), "a function with **kwargs receives every column"
    assert made(conversational).score(item("5", gold="5")).accuracy == 1.0
    assert made(conversational, right=2.0).score(item("5", gold="5")).accuracy == 0.0


def test_a_function_of_verl_and_one_in_a_file() -> None:
    assert made(compute_score).score(item("it is 5", reward_model={"ground_truth": "5"})).value == 1.0
    assert made(f"{FUNCTIONS}:box_is_right").score(item("\\boxed{5}", solution="5")).value == 1.0


def test_other_functions_stay_those_of_rlcore_and_a_wrong_signature_is_refused() -> None:
    assert made(plain).score(item("a")).value == 0.5

    def asks_for_state(completions: Any, prompts: Any, trainer_state: Any) -> list[float]:
        return []

    with pytest.raises(PluginError, match="'asks_for_state' asks for trainer_state, which only TRL's trainer provides"):
        made(asks_for_state)


def test_names_of_trl_become_those_of_rlcore() -> None:
    given = {"model": "m", "train_dataset": "d", "reward_funcs": [brief], "max_completion_length": 64, "beta": 0.0, "learning_rate": 1e-5}
    given |= {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2, "num_generations": 4, "epsilon": 0.1, "logging_steps": 1}
    assert translated(given) == {
        "model": "m",
        "dataset": "d",
        "reward": [brief],
        "max_new_tokens": 64,
        "kl_coeff": 0.0,
        "learning_rate": 1e-5,
        "train_batch_size": 8,
        "num_generations": 4,
        "algorithm.options.clip_eps_low": 0.1,
        "algorithm.options.clip_eps_high": 0.1,
    }
    assert translated({"model": "m", "tools": "tools.json", "max_new_tokens": 3}) is None, "names of rlcore stay"


@dataclass
class Config:
    """Stands in for GRPOConfig."""

    output_dir: str = "out"
    num_train_epochs: float = 3.0
    num_iterations: int = 1
    use_vllm: bool = False
    beta: float = 0.0
    deepspeed: str = ""
    extra: list[int] = field(default_factory=list)


def test_only_the_fields_that_were_set_count() -> None:
    assert translated({"args": Config(num_iterations=2, use_vllm=True)}) == {"epochs_per_batch": 2, "inference.name": "vllm"}


def test_a_loss_type_is_an_aggregation_or_a_loss_and_not_the_recipe_of_that_name() -> None:
    with pytest.raises(ConfigError) as refused:
        translated({"loss_type": "dapo"})
    assert str(refused.value) == (
        'loss_type is a name of TRL; pass loss_variation="token_level" for "dapo" and "bnpo", "sample_level" for "grpo", '
        '"constant_length" for "dr_grpo"; loss="cispo" or "sapo" for these'
    )


def test_options_of_the_loss_have_their_paths() -> None:
    given = {"delta": 3.0, "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.1}
    assert translated(given) == {
        "algorithm.options.dual_clip": 3.0,
        "algorithm.options.tau_pos": 1.0,
        "algorithm.options.tau_neg": 1.1,
    }


def test_every_name_without_a_counterpart_is_refused_in_one_message() -> None:
    with pytest.raises(ConfigError) as refused:
        translated(
            {
                "args": Config(deepspeed="z3", num_train_epochs=0.5, beta=0.1),
                "peft_config": object(),
                "kl_coeff": 0.2,
                "per_device_train_batch_size": 3,
            }
        )
    assert str(refused.value).split("; ") == [
        "deepspeed of GRPOConfig has no counterpart in rlcore",
        "leave it out",
        "num_train_epochs 0.5: pass num_episodes, a whole number, or max_steps",
        "beta is TRL's name of kl_coeff, which is given too",
        "leave one out",
        "peft_config is a name of TRL",
        "pass lora_rank=16, with lora_alpha and lora_targets",
        "per_device_train_batch_size x gradient_accumulation_steps = 3 completions do not fill groups of num_generations = 8",
        "pass train_batch_size, in prompts",
    ]
