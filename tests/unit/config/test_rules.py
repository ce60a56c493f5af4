"""Rules between settings: each has a case that it refuses and, on its boundary, one that it lets pass."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import pytest

from rlcore.config import Plan, plan_run
from rlcore.config.rules import RULES
from rlcore.contracts.errors import ConfigError
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import PluginFolder

SOURCE = """
from pydantic import BaseModel, ConfigDict
from rlcore.api import RewardName
from rlcore.api import (
    AdvantageSpec, AlgorithmSpec, LossSpec, RewardSpec, RuntimeSpec, TrainingBackendSpec, TrainingCapabilities, hookimpl
)
rlcore_api = "2.0"

class Named(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    gate: RewardName | None = None
    others: tuple[RewardName, ...] = ()

@hookimpl
def rlcore_register_rewards():
    target = "rlcore.testing.rewards.fake_reward:FakeReward"
    return [
        RewardSpec(name="right", target=target, summary=""),
        RewardSpec(name="nice", target=target, summary="", gives_accuracy=False),
    ]

@hookimpl
def rlcore_register_advantage_estimators():
    target = "rlcore.learning.advantages:GroupNorm"
    return [
        AdvantageSpec(name="takes_kl", target=target, summary="", accepts_kl=True),
        AdvantageSpec(name="alone", target=target, summary="", group_baseline=False),
        AdvantageSpec(name="named", target=target, summary="", config="rlcore_plugin_acme:Named"),
        AdvantageSpec(name="each_token", target=target, summary="", accepts_kl=True, per="token"),
    ]

@hookimpl
def rlcore_register_training_backends():
    zero = TrainingCapabilities(layouts=frozenset({"single", "zero"}), entropies=True)
    return [
        TrainingBackendSpec(name="small", target="json:load", summary="", capabilities=TrainingCapabilities(), preference=-1),
        TrainingBackendSpec(name="sharded", target="json:load", summary="", capabilities=zero, preference=-1),
    ]

@hookimpl
def rlcore_register_runtimes():
    return [RuntimeSpec(name="threads", target="json:load", summary="", preference=-1)]

@hookimpl
def rlcore_register_algorithms():
    return [
        AlgorithmSpec(name="plain", estimator="group_norm", loss="clipped", summary=""),
        AlgorithmSpec(
            name="many", estimator="group_norm", loss="clipped", summary="", defaults={"algorithm.updates_per_batch": (8, "table 1")}
        ),
    ]

@hookimpl
def rlcore_register_losses():
    target = "rlcore.learning.losses:ClippedSurrogate"
    return [
        LossSpec(name="no_ratio", target=target, summary="", on_policy=True),
        LossSpec(name="uncertain", target=target, summary="", prepares_entropy=True),
        LossSpec(name="whole", target=target, summary="", sequence_ratio=True, one_advantage=True),
    ]

@hookimpl
def rlcore_check_run(config):
    return ["seed 13 is unlucky; type --seed 14"] if config.run.seed == 13 else []

@hookimpl
def rlcore_note_run(config):
    return [f"seed {config.run.seed} will do"]

@hookimpl
def rlcore_remark_run(facts):
    return [f"{facts.cite('run.seed')}, one more than {facts.config.run.seed - 1}"] if 9 / (facts.config.run.seed - 7) else []
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with PluginFolder(tmp_path_factory.mktemp("plugins")) as folder:
        folder.install("acme", SOURCE)
        ours = [distribution(f"rlcore-plugin-{name}") for name in ("processes", "ray", "tools")]
        yield Registry.discover([*distributions(path=[str(folder.root)]), *ours])


def plan(registry: Registry, values: dict[str, Any], *rewards: str) -> Plan:
    base = {
        "model": "org/model",
        "dataset": "hf:x",
        "algorithm.name": "plain",
        "max_staleness": 0,
        "rewards": [{"name": name} for name in rewards or ("right",)],
    }
    return plan_run([], {}, registry, overrides={**base, **values})


UNSEEN = ("\0", "\x1b[2J", "\n", "\r", "\t", "\x07", "\x7f", "\x9b31m", "\u202e", "\u2066", "\u200b", "\u2028")
NO_NAMES = ("", ".", "..", ".a", "a/b", "/", "a\\b", "x" * 256, "é" * 128)
FOLDERS = ("run_dir", "ray_dir", "save_dir", "rollout_save_dir", "eval_save_dir")

REFUSED: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"train_batch_size": 2, "train_minibatch_size": 3}, (), "train_minibatch_size = 3"),
    ({"train_minibatch_size": 2, "num_generations": 4, "train_microbatch_size": 9}, (), "type -tmbs 8"),
    ({"filter_range": [0.9, 0.1]}, (), "type --filter-range 0.1 0.9"),
    ({"filter_range": [0.5, 0.5]}, (), "type --filter-range 0.01 0.99"),
    ({"filter_range": [1, 2]}, (), "an accuracy is between 0 and 1"),
    ({"filter_range": [-1, 0]}, (), "an accuracy is between 0 and 1"),
    ({"max_new_tokens": 1, "cache_length": 1}, (), "type -mnt 4 or more"),
    ({"cache_length": 0, "soft_over_length_punishment": True, "max_new_tokens": 40}, (), "type --cache-length 10"),
    ({"loss": "no_ratio", "max_staleness": 1, "top_p": 0.9}, (), "type --max-staleness 0"),
    ({"dynamic_batching": True}, (), "--filter-range 0.01 0.99"),
    ({"filter_range": [0, 1]}, ("nice",), "nice does not give"),
    ({"filter_range": [0, 1], "filter_by": "nice"}, ("right", "nice"), "type --filter-by right"),
    ({"filter_range": [0, 1], "filter_by": "absent"}, (), "type --filter-by right"),
    ({"max_new_tokens": 100, "cache_length": 100}, (), "type --cache-length 25"),
    ({"max_new_tokens": 3, "soft_over_length_punishment": True}, (), "at least 1"),
    ({"train_batch_size": 8, "data_actor_buffer_size_limit": 7}, (), "type -cbsl 8"),
    ({"kl_in": "reward", "kl_coeff": 0.1}, (), "group_norm does not"),
    ({"training.name": "small", "zero_stage": 1}, (), "zero_stage = 1 (Python): training backend small does not offer the layout zero"),
    ({"training.name": "small", "zero_stage": 1, "runtime": "ray"}, (), "it offers single); type -zero 0"),
    ({"training.name": "small", "num_trainers": 3, "tensor_parallel_size": 2}, (), "type -tp 1"),
    ({"training.name": "sharded", "zero_stage": 1, "runtime": "threads"}, (), "type --runtime ray or -zero 0"),
    ({"num_trainers": 3, "tensor_parallel_size": 2, "runtime": "ray"}, (), "type -t 4"),
    ({"top_p": 0.9, "old_logprobs": "rollout"}, (), "top_p = 0.9"),
    ({"top_k": 5, "old_logprobs": "rollout"}, (), "top_k = 5"),
    ({"top_p": 0.9, "mismatch_correction": "truncated"}, (), "type -topp 1 or --mismatch-correction none"),
    ({"top_k": 5, "mismatch_correction": "decoupled"}, (), "type -topk 0 or --mismatch-correction none"),
    ({"min_p": 0.2, "mismatch_correction": "decoupled"}, (), "type --min-p 0 or --mismatch-correction none"),
    ({"min_p": 0.2, "old_logprobs": "rollout"}, (), "min_p = 0.2"),
    ({"old_logprobs": "rollout", "mismatch_correction": "masked"}, (), "type --old-logprobs trainer"),
    ({"mismatch_range": [0.5, 2]}, (), "mismatch_range = 0.5 2"),
    ({"mismatch_range": [0.5, 2], "mismatch_correction": "decoupled"}, (), "type --mismatch-correction truncated"),
    ({"mismatch_range": [2, 0.5], "mismatch_correction": "truncated"}, (), "type --mismatch-range 0.5 2"),
    ({"mismatch_range": [2, 2], "mismatch_correction": "masked"}, (), "type --mismatch-range 0.5 5"),
    ({"mismatch_range": [1.1, 5], "mismatch_correction": "masked"}, (), "type --mismatch-range 0.5 5"),
    ({"mismatch_range": [0, 0.9], "mismatch_correction": "truncated"}, (), "type --mismatch-range 0 2"),
    ({"mismatch_range": None, "mismatch_correction": "sequence_masked"}, (), "type --mismatch-range 0 2"),
    ({"loss": "whole", "mismatch_correction": "truncated"}, (), "type --mismatch-correction sequence_truncated"),
    ({"loss": "whole", "mismatch_correction": "masked"}, (), "type --mismatch-correction sequence_masked"),
    (
        {"loss": "whole", "estimator": "each_token", "kl_in": "reward", "kl_coeff": 0.1},
        (),
        "kl_in = reward (Python): estimator each_token gives each token its own advantage, and the loss whole takes one for a whole "
        "response; type --kl-in loss, or -kl 0, or choose another --loss",
    ),
    ({"skip_threshold": 1.0}, (), "above 1"),
    ({"loss": "no_ratio", "updates_per_batch": 2}, (), "type --updates-per-batch 1"),
    ({"loss": "no_ratio", "epochs_per_batch": 2}, (), "type --epochs-per-batch 1"),
    ({"loss": "no_ratio", "max_staleness": 1}, (), "type --max-staleness 0"),
    ({"train_batch_size": 2, "updates_per_batch": 3}, (), "type --updates-per-batch 2"),
    ({"train_batch_size": 2, "updates_per_batch": 3, "algorithm.name": "many"}, (), "type --updates-per-batch 2"),
    ({"runtime": "threads", "num_trainers": 2}, (), "type --runtime ray or -t 1"),
    ({"runtime": "threads", "num_inferencer": 2}, (), "type --runtime ray or -i 1"),
    ({"runtime": "threads", "inference.environment": "env"}, (), "does not use environment = env (Python); type --runtime local or"),
    ({"runtime": "local", "max_staleness": 1, "transport": "memory"}, (), "which starts several processes here; type --transport auto"),
    (
        {"runtime": "local", "ray_dir": "/tmp/r"},
        (),
        "does not use ray_dir = /tmp/r (Python); type --runtime ray",
    ),
    ({"transport": "shared"}, (), "type --transport auto or --runtime ray"),
    ({"transport": "memory", "runtime": "ray"}, (), "type --transport auto or --runtime local"),
    ({"transport": "memory", "num_inferencer": 2}, (), "transport = memory"),
    ({"placement": "colocated", "max_staleness": 1}, (), "type --max-staleness 0 or --placement split"),
    ({"placement": "colocated", "max_staleness": 1, "runtime": "ray"}, (), "max_staleness = 1"),
    ({}, ("right", "right"), "names right twice"),
    ({"eval_interval": 5}, (), "-ed"),
    ({"eval_dataset": {"a/b": "hf:x"}}, (), "'a/b'"),
    ({"eval_dataset": {"a": "hf:x"}, "eval_samples": 4, "eval_temperature": 0.0}, (), "makes them all the same"),
    ({"best_by": "eval/a"}, (), "is not a metric of this run"),
    ({"eval_dataset": {"a": "hf:x"}, "best_by": "eval/b/pass@4"}, (), "such as reward/mean, eval/a"),
    ({"best_by": "min:reward/men"}, (), "docs/reference/metrics.md"),
    ({"eval_dataset": {"a": "hf:x"}, "eval_samples": 4, "best_by": "eval/a/pass@8"}, (), "type --eval-samples 8"),
    ({"eval_dataset": {"a": "hf:x"}, "eval_samples": 4, "best_by": "eval/a/maj@3"}, (), "is not measured with eval_samples 4"),
    ({"eval_dataset": {"a": "hf:x"}, "best_by": "eval/a/failed"}, (), "is not a metric of this run"),
    ({"best_by": "eval/b/conversation/guesses"}, (), "is not a metric of this run"),
    ({"project": "../x"}, (), "project = ../x"),
    *(({"project": f"a{sign}b"}, (), "names a folder: use a plain word") for sign in UNSEEN),
    *(({"eval_dataset": {f"a{sign}b": "hf:x"}}, (), f"the evaluation task {f'a{sign}b'!r} names a folder") for sign in UNSEEN),
    *(({"eval_dataset": {name: "hf:x"}}, (), "names a folder of the run: use a plain word") for name in NO_NAMES),
    *(({"project": name}, (), "names a folder: use a plain word") for name in NO_NAMES if name),
    *(({key: f"a/{sign}/b"}, (), "has an invisible character") for key in FOLDERS for sign in UNSEEN),
    ({"loss": "uncertain", "training.name": "small"}, (), "training backend small does not compute it (capabilities.entropies is False)"),
    (
        {"estimator": "named", "algorithm.options": {"gate": "rihgt"}},
        ("right", "nice"),
        "gate = rihgt (Python) must name a reward of the run, for advantage estimator named of rlcore-plugin-acme, did you mean "
        "'right'; its rewards are: right, nice",
    ),
    ({"estimator": "named", "algorithm.options": {"others": ("nice", "right")}}, ("nice",), "its rewards are: nice"),
    ({"seed": 13}, (), "rlcore-plugin-acme: seed 13 is unlucky"),
]

LET_PASS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    *(({"project": name, "eval_dataset": {name: "hf:x"}}, ()) for name in ("x" * 255, "é" * 127, "a b", "数学", "a..b", "-a")),
    ({"train_batch_size": 3, "train_minibatch_size": 3}, ()),
    ({"train_minibatch_size": 2, "num_generations": 4, "train_microbatch_size": 8}, ()),
    ({"filter_range": [0.1, 0.9]}, ()),
    ({"filter_range": [0.1, 0.9], "dynamic_batching": True}, ()),
    ({"filter_range": [0, 1], "filter_by": "right"}, ("nice", "right")),
    ({"filter_range": [0, 1]}, ("nice", "right")),
    ({"max_new_tokens": 100, "cache_length": 99}, ()),
    ({"max_new_tokens": 3}, ()),
    ({"max_new_tokens": 4, "soft_over_length_punishment": True}, ()),
    ({"train_batch_size": 8, "data_actor_buffer_size_limit": 8}, ()),
    ({"kl_in": "reward", "kl_coeff": 0.1, "estimator": "takes_kl"}, ()),
    ({"kl_in": "reward"}, ()),
    ({"num_trainers": 4, "tensor_parallel_size": 2, "runtime": "ray"}, ()),
    ({"training.name": "sharded", "zero_stage": 1, "runtime": "ray"}, ()),
    ({"top_p": 0.9, "old_logprobs": "trainer"}, ()),
    ({"top_p": 0.9}, ()),
    ({"mismatch_correction": "truncated"}, ()),
    ({"mismatch_correction": "truncated", "mismatch_range": None}, ()),
    ({"mismatch_correction": "masked", "mismatch_range": [0, 2], "max_staleness": 2}, ()),
    ({"mismatch_correction": "decoupled", "mismatch_range": None}, ()),
    ({"loss": "no_ratio"}, ()),
    ({"estimator": "named"}, ()),
    ({"estimator": "named", "algorithm.options": {"gate": "nice", "others": ("right",)}}, ("right", "nice")),
    ({"loss": "uncertain", "training.name": "sharded"}, ()),
    ({"loss": "whole", "mismatch_correction": "sequence_masked"}, ()),
    ({"loss": "whole", "estimator": "each_token", "kl_in": "reward", "kl_coeff": 0.0}, ()),
    ({"loss": "whole", "estimator": "each_token", "kl_in": "loss", "kl_coeff": 0.1}, ()),
    ({"loss": "whole", "estimator": "takes_kl", "kl_in": "reward", "kl_coeff": 0.1}, ()),
    ({"estimator": "each_token", "kl_in": "reward", "kl_coeff": 0.1}, ()),
    ({"mismatch_range": [1, 5], "mismatch_correction": "masked"}, ()),
    ({"mismatch_range": [0, 1], "mismatch_correction": "truncated"}, ()),
    ({"skip_threshold": 1.1}, ()),
    ({"loss": "no_ratio", "max_staleness": 1, "mismatch_correction": "decoupled"}, ()),
    ({"updates_per_batch": 2, "max_staleness": 1}, ()),
    ({"train_batch_size": 3, "updates_per_batch": 3}, ()),
    ({"train_batch_size": 3, "algorithm.name": "many"}, ()),
    ({"train_batch_size": 3, "algorithm.name": "many", "updates_per_batch": 8}, ()),
    ({"transport": "memory"}, ()),
    ({"transport": "shared", "runtime": "ray"}, ()),
    ({"transport": "object_store", "num_inferencer": 2}, ()),
    ({"placement": "colocated"}, ()),
    ({"placement": "split", "max_staleness": 1}, ()),
    ({"eval_interval": 5, "eval_dataset": {"a": "hf:x"}}, ()),
    ({"eval_samples": 4, "eval_dataset": {"a": "hf:x"}, "best_by": "eval/a/pass@4"}, ()),
    ({"best_by": "min:response_length/mean"}, ()),
    ({"eval_dataset": {"a": "hf:x"}, "best_by": "min:eval/a/conversation/guesses"}, ()),
    ({"best_by": "loss/mine"}, ()),
    ({"seed": 14}, ()),
]


@pytest.mark.parametrize(("values", "rewards", "said"), REFUSED)
def test_refused(values: dict[str, Any], rewards: tuple[str, ...], said: str, registry: Registry) -> None:
    with pytest.raises(ConfigError) as refused:
        plan(registry, values, *rewards)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("values", "rewards"), LET_PASS)
def test_let_pass(values: dict[str, Any], rewards: tuple[str, ...], registry: Registry) -> None:
    plan(registry, values, *rewards)


def test_each_rule_has_a_case_of_its_own(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a rule, one of its cases would pass: the table above covers every rule."""
    from rlcore.config import rules

    for rule in RULES:
        monkeypatch.setattr(rules, "RULES", tuple(other for other in RULES if other is not rule))
        assert any(_passes(registry, values, rewards) for values, rewards, _ in REFUSED), rule.__name__


def _passes(registry: Registry, values: dict[str, Any], rewards: tuple[str, ...]) -> bool:
    try:
        plan(registry, values, *rewards)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_generations": 1}, "estimator group_norm compares the completions of a prompt, so a group of one"),
        (
            {"train_batch_size": 3, "algorithm.name": "many"},
            "updates_per_batch = 8 (recipe many): a batch of 3 prompts makes 3 optimizer steps, because each takes at least one prompt",
        ),
        ({"oversampling": 200}, "are scored and trained, and 200 are discarded: a larger -g would train them"),
        ({"oversampling": 2}, "oversampling = 2 (Python): of 10 completions per prompt, the first 8 to finish are scored and trained"),
        ({"partial_rollouts": True, "max_staleness": 2}, "tokens do not train that are more than 2 versions old"),
        ({"partial_rollouts": True, "max_staleness": 0}, "partial_rollouts = true (Python): no effect at max_staleness 0"),
        ({"max_in_flight": 99, "max_staleness": 0}, "max_in_flight = 99 (Python): no effect at max_staleness 0"),
        ({"filter_limit": 5}, "filter_limit = 5 (Python): no filter is set"),
        ({"filter_limit": None}, "--filter-range sets one"),
        ({"kl_coeff": 0.1}, "a reference model is loaded"),
        ({"kl_coeff": 0.1, "lora_rank": 4}, "the reference is the model without its adapters"),
        ({"lora_targets": ["q_proj"]}, "is not used, because no adapters are trained; --lora-rank 16 trains them"),
        ({"skip_threshold": 20.0}, "every ratio is 1"),
        ({"skip_threshold": 20.0, "max_staleness": 2, "mismatch_correction": "truncated"}, "clipping have no effect"),
        ({"max_staleness": 2, "top_p": 0.9}, "a sampler without top-p and top-k could be corrected for"),
        ({"max_staleness": 2, "old_logprobs": "trainer", "loss": "whole"}, "--mismatch-correction sequence_truncated weighs it"),
        ({"filter_range": [0, 1], "num_generations": 1}, "no group of "),
        ({"max_staleness": 2, "old_logprobs": "trainer"}, "--mismatch-correction decoupled weighs it"),
        ({"filter_range": [0, 1], "dynamic_batching": True}, "--max-steps sets the number of updates"),
        ({"filter_range": [0, 1]}, "--dynamic-batching"),
        ({"num_trainers": 4, "train_batch_size": 8}, "-tbs 32 to mean the same (4 ranks)"),
        ({"runtime": "ray", "master_address": "h:1", "ray_dir": "/tmp/r"}, "is not used: the cluster that the run joins"),
        ({"producer_restarts": 1}, "producer_restarts = 1 (Python) is not used"),
        ({"producer_load_deadline": 9.0}, "producer_load_deadline = 9.0 (Python) is not used"),
        ({"learning_rate": 2e4}, "looks mistyped: AdamW trains with 1e-6 to 1e-3; did you mean 2e-4?"),
        ({"learning_rate": 1.0}, "learning_rate = 1.0 (Python) looks mistyped: AdamW trains with 1e-6 to 1e-3"),
        ({"kl_coeff": 100.0}, "looks mistyped: 0 to 0.1 is usual; did you mean 1e-2?"),
        ({"temperature": 70.0}, "temperature = 70.0 (Python) looks mistyped: 0.6 to 1.2 is usual; did you mean 7e-1?"),
        (
            {"eval_dataset": {"a": "hf:x"}},
            "eval_temperature = 0.6 (default); training samples with temperature = 1.0 (default)",
        ),
        ({"eval_dataset": {"a": "hf:x"}, "eval_temperature": 0.0}, "eval_temperature = 0.0 (Python), so it is greedy"),
    ],
)
def test_remarks(values: dict[str, Any], said: str, registry: Registry) -> None:
    assert any(said in note for note in plan(registry, values).notes)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_generations": 1, "estimator": "alone"}, "a group of one"),
        ({"num_generations": 2}, "a group of one"),
        ({"runtime": "ray", "ray_dir": "/tmp/r", "producer_restarts": 1}, "is not used"),
        ({"producer_deadline": 9.0}, "is not used"),
        ({}, "is not used"),
        ({"train_batch_size": 8, "algorithm.name": "many"}, "optimizer steps, because each"),
        ({"filter_limit": 5, "filter_range": [0, 1]}, "no filter is set"),
        ({}, "no filter is set"),
        ({}, "under-represented"),
        ({"filter_range": [0, 1], "num_generations": 2}, "lies between"),
        ({"skip_threshold": 20.0, "old_logprobs": "rollout"}, "clipping have no effect"),
        ({"skip_threshold": 20.0, "old_logprobs": "trainer", "epochs_per_batch": 2}, "clipping have no effect"),
        ({"max_staleness": 2}, "as if it were fresh"),
        ({"max_staleness": 2, "mismatch_correction": "decoupled"}, "as if it were fresh"),
        ({"max_staleness": 2, "old_logprobs": "trainer", "updates_per_batch": 2}, "as if it were fresh"),
        ({"filter_range": [0, 1], "dynamic_batching": True, "max_steps": 9}, "--max-steps sets"),
        ({}, "mistyped"),
        ({"learning_rate": 1e-3, "kl_coeff": 0.5, "weight_decay": 0.0, "temperature": 0.6}, "mistyped"),
        ({}, "evaluation: "),
    ],
)
def test_no_remark_where_there_is_nothing_to_remark(values: dict[str, Any], said: str, registry: Registry) -> None:
    assert not any(said in note for note in plan(registry, values).notes)


def test_one_step_for_a_single_prompt_is_on_policy_whatever_the_recipe_splits_into(registry: Registry) -> None:
    assert plan(registry, {"train_batch_size": 1, "algorithm.name": "many"}).config.algorithm.old_logprobs == "trainer"
    assert plan(registry, {"train_batch_size": 2, "algorithm.name": "many"}).config.algorithm.old_logprobs == "rollout"


@pytest.mark.parametrize(("name", "flag"), [("model", "-m"), ("dataset", "-d"), ("rewards", "-rt")])
def test_what_a_run_cannot_do_without(name: str, flag: str, registry: Registry, tmp_path: Path) -> None:
    values: dict[str, Any] = {"model": "", "dataset": "", "rewards": []}
    with pytest.raises(ConfigError, match=flag):
        plan(registry, {name: values[name]})


def test_what_a_plugin_says_of_a_run_is_among_the_notes(registry: Registry) -> None:
    notes = plan(registry, {"seed": 3}).notes
    assert "rlcore-plugin-acme: seed 3 will do" in notes
    assert "seed = 3 (Python), one more than 2" in notes


def test_a_plugin_that_fails_to_remark_on_a_run_is_named_and_the_run_is_planned(registry: Registry) -> None:
    notes = plan(registry, {"seed": 7}).notes
    assert any(note.startswith("rlcore-plugin-acme: rlcore_remark_run raised ZeroDivisionError: division by zero") for note in notes)


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        ([{"name": "right"}], "reward right: a right answer is worth 1"),
        (
            [{"name": "right", "weight": 3.0}, {"name": "nice"}],
            "a right answer is worth at most 4: right 1 x weight 3 = 75%, nice 1 x weight 1 = 25%",
        ),
        (
            [{"name": "right"}, {"name": "nice", "weight": -1.0}],
            "at most 1: right 1 x weight 1 = 100%, nice 1 x weight -1 (reduces it)",
        ),
    ],
)
def test_the_full_mark_of_each_reward_is_told(rewards: list[dict[str, Any]], said: str, registry: Registry) -> None:
    assert any(note.endswith(said) for note in plan(registry, {"rewards": rewards}).notes)
