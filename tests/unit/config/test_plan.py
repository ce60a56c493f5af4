"""From names to a plan: recipes, options of plugins, everything that reads auto, and what is missing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import pytest

from rlcore.config import Missing, Origin, Plan, RunConfig, TypedFlag, plan_run, to_toml
from rlcore.config.resolve import NUMBERS, preferred_runtime, training_name
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.specs import RewardSpec, RuntimeSpec, TrainingBackendSpec, TrainingCapabilities
from rlcore.registry.install import install_line
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import PluginFolder

SOURCE = """
from rlcore.api import AlgorithmSpec, InferenceBackendSpec, LossSpec, RewardSpec, RuntimeSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_algorithms():
    defaults = {
        "algorithm.filter_range": ((0.01, 0.99), "section 3.2"),
        "algorithm.options.clip_eps_high": (0.28, "section 3.1"),
        "training.train_batch_size": (64, "table 1"),
    }
    return [
        AlgorithmSpec(name="plain", estimator="group_norm", loss="clipped", summary=""),
        AlgorithmSpec(name="far", estimator="group_mean", loss="clipped", summary="", defaults=defaults),
        AlgorithmSpec(name="wrong", estimator="group_mean", loss="clipped", summary="", defaults={"training.train_batch_size": (0, "")}),
    ]

@hookimpl
def rlcore_register_losses():
    return [
        LossSpec(name="bare", target="rlcore.learning.losses:ClippedSurrogate", summary=""),
        LossSpec(name="own", target="rlcore.learning.losses:ClippedSurrogate", config="rlcore_plugin_acme.models:Own", summary=""),
    ]

@hookimpl
def rlcore_register_rewards():
    models = "rlcore_plugin_acme.models:"
    return [
        RewardSpec(name=name, target="json:load", config=models + name.title(), summary="", deadline=seconds)
        for name, seconds in (("long", 17.0), ("short", 10.0))
    ]

@hookimpl
def rlcore_register_inference_backends():
    return [
        InferenceBackendSpec(name="here", target="json:load", config="rlcore_plugin_acme.models:Here", summary=""),
        InferenceBackendSpec(name="there", target="json:load", summary="", requires_module="no_such_engine"),
    ]

@hookimpl
def rlcore_register_runtimes():
    return [
        RuntimeSpec(name="acme", target="json:load", summary="", reach="cluster"),
        RuntimeSpec(name="threads", target="json:load", config="rlcore_plugin_acme.models:Short", summary=""),
    ]
"""
MODELS = """
from pydantic import BaseModel, ConfigDict, Field, model_validator

class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

class Own(Strict):
    tau: float = Field(1.0, gt=0)

class Long(Strict):
    scale: float = 10.0
    depth: int = 3

class Short(Strict):
    scale: float = 1.0

class Here(Strict):
    low: int = 0
    high: int = 9

    @model_validator(mode="after")
    def ordered(self):
        if self.low > self.high:
            raise ValueError("low must not exceed high")
        return self
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with PluginFolder(tmp_path_factory.mktemp("plugins")) as folder:
        folder.install("acme", SOURCE, files={"models.py": MODELS})
        ours = [distribution(f"rlcore-plugin-{name}") for name in ("processes", "ray")]
        yield Registry.discover([*distributions(path=[str(folder.root)]), *ours])


def flags(text: str) -> dict[str, Any]:
    """``"training.train_batch_size=-tbs 4; run.seed=--seed 3"`` as typed flags."""
    typed = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        path, _, words = item.partition("=")
        flag, *rest = words.split()
        typed[path] = TypedFlag(flag, tuple(rest))
    return typed


def plan(registry: Registry, typed: str = "", *files: Path, **values: Any) -> Plan:
    base = {"model": "org/model", "dataset": "hf:x", "algorithm.name": "plain", "rewards": "long"}
    return plan_run(files, flags(typed), registry, overrides={**base, **values}, require=False)


def test_a_recipe_s_defaults_stand_between_the_core_and_the_user(registry: Registry) -> None:
    found = plan(registry, "algorithm.name=-a far; training.train_batch_size=-tbs 8")
    assert found.config.training.train_batch_size == 8
    assert found.config.algorithm.filter_range == (0.01, 0.99)
    assert found.origins["algorithm.filter_range"] == Origin("recipe", "recipe far")
    assert (found.config.algorithm.estimator, found.config.algorithm.loss) == ("group_mean", "clipped")
    assert found.config.algorithm.options == {"clip_eps_low": 0.2, "clip_eps_high": 0.28, "dual_clip": None}
    assert found.origins["algorithm.options.clip_eps_high"] == Origin("recipe", "recipe far")
    assert found.loss_options is not None
    assert found.loss_options.model_dump() == found.config.algorithm.options


def test_a_recipe_s_own_mistake_is_blamed_on_it(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r"recipe wrong: training.train_batch_size = 0"):
        plan(registry, "algorithm.name=-a wrong")


def test_a_recipe_s_default_can_be_switched_off_and_stays_off_when_written(registry: Registry, tmp_path: Path) -> None:
    found = plan(registry, "algorithm.name=-a far; algorithm.filter_range=--filter-range none")
    assert found.config.algorithm.filter_range is None
    file = tmp_path / "run.toml"
    file.write_text(to_toml(found.config, ["algorithm.filter_range"]), encoding="utf-8")
    assert plan_run([file], {}, registry).config == found.config


def test_a_resolved_configuration_resolves_to_itself(registry: Registry, tmp_path: Path) -> None:
    found = plan(registry, "algorithm.name=-a far; inference.name=-b here; inference.options.low=--low 2")
    file = tmp_path / "run.toml"
    file.write_text(to_toml(found.config), encoding="utf-8")
    again = plan_run([file], {}, registry)
    assert again.config == found.config
    assert all(
        value != "auto"
        for table in tomllib.loads(file.read_text()).values()
        if isinstance(table, dict)
        for key, value in table.items()
        if key not in ("device", "save_interval", "format", "sampler")  # known only where a run stands, and by the rows
    )


def test_recipe_options_that_another_loss_does_not_have_are_dropped_with_a_note(registry: Registry) -> None:
    found = plan(registry, "algorithm.name=-a far; algorithm.loss=--loss bare")
    assert found.config.algorithm.options == {}
    assert any("clip_eps_high (recipe far)" in note and "loss bare" in note for note in found.notes)


def test_options_of_a_file_do_not_outlive_the_loss_that_they_stand_beside(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[algorithm.options]\nclip_eps_low = 0.1\n", encoding="utf-8")
    assert plan(registry, "", file).config.algorithm.options["clip_eps_low"] == 0.1
    found = plan(registry, "algorithm.loss=--loss own; algorithm.options.tau=--tau 2", file)
    assert found.config.algorithm.options == {"tau": 2.0}
    assert any("clip_eps_low" in note and "do not apply" in note for note in found.notes)


def test_options_beside_their_plugin_must_be_its_own(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[algorithm]\nname = "plain"\nloss = "own"\n[algorithm.options]\nclip_eps_low = 0.1\n', encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"a.toml, line 5: algorithm.options.clip_eps_low is not an option of .*loss own of rlcore-plugin-acme"
    ):
        plan_run([file], {}, registry, require=False)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "algorithm.loss=--loss own; algorithm.options.tau=--tau 0",
            r"--tau 0: algorithm.options.tau \(loss own of rlcore-plugin-acme\) must be",
        ),
        ("algorithm.loss=--loss own; algorithm.options.tau=--tau x", r"--tau x: .* a finite number above 0"),
        (
            "inference.name=-b here; inference.options.low=--low 10",
            r"\[inference.options\] \(inference backend here.*low must not exceed high",
        ),
    ],
)
def test_an_option_that_its_plugin_s_model_refuses(typed: str, said: str, registry: Registry) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        plan(registry, typed)
    assert "\n" not in str(refused.value)


def test_flags_for_options_of_rewards(registry: Registry) -> None:
    found = plan(
        registry, "rewards.options.depth=--depth 5; rewards.deadline=--reward-deadline 3", rewards=[{"name": "long"}, {"name": "short"}]
    )
    assert [dict(entry.options) for entry in found.config.rewards] == [{"scale": 10.0, "depth": 5}, {"scale": 1.0}]
    assert [entry.deadline for entry in found.config.rewards] == [3.0, 3.0]
    assert [type(options).__name__ for options in found.reward_options] == ["Long", "Short"]
    assert found.origins["rewards.0.options.depth"] == Origin("flag", "--depth")
    with pytest.raises(ConfigError, match="--scale: the option scale belongs to long and short, but"):
        plan(registry, "rewards.options.scale=--scale 5", rewards=[{"name": "long"}, {"name": "short"}])


def test_a_runtime_that_nobody_offers_is_refused_by_name(registry: Registry) -> None:
    with pytest.raises(PluginError, match=r"--runtime: there is no runtime 'cloud' \(installed: acme, in_process, local, ray, threads\)"):
        plan(registry, "run.runtime=--runtime cloud")


def test_auto_takes_the_runtime_that_is_installed_for_several(registry: Registry) -> None:
    """The one with the highest preference of its spec, rlcore's own or not."""
    assert plan(registry, num_trainers=2).config.run.runtime == "ray"
    alone = Registry([])
    alone.add("runtime", RuntimeSpec(name="one", target="builtins:object", summary="s"))
    assert preferred_runtime(alone, several=False) == "one"
    assert preferred_runtime(alone, several=True) == "local", "what is to be installed"
    for name, preference in (("theirs", 0), ("liked", 1), ("never", -1)):
        alone.add("runtime", RuntimeSpec(name=name, target="builtins:object", summary="s", reach="cluster", preference=preference))
    assert preferred_runtime(alone, several=True) == "liked"


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ({}, ("liked", "no pipeline parallelism")),
        ({"num_trainers": 4, "pipeline_parallel_size": 2}, ("pipes", "pipeline_parallel_size > 1")),
        ({"name": "never"}, ("never", "")),
    ],
)
def test_auto_takes_the_training_backend_whose_spec_says_that_it_can(sizes: dict[str, Any], chosen: tuple[str, str]) -> None:
    registry = Registry([])
    for name, pipeline, preference in (("liked", False, 2), ("other", False, 0), ("pipes", True, 1), ("never", True, -1)):
        offered = TrainingCapabilities(layouts=frozenset({"single", *["pipeline"] * pipeline}))
        spec = TrainingBackendSpec(name=name, target="builtins:object", summary="s", capabilities=offered, preference=preference)
        registry.add("training", spec)
    assert training_name(RunConfig.model_validate({"training": sizes}), registry) == chosen


def test_without_a_training_backend_that_can_one_that_is_not_installed_is_named() -> None:
    registry = Registry([])
    assert training_name(RunConfig(), registry)[0] == "torch", "which a release has"
    registry.add("training", TrainingBackendSpec(name="torch", target="builtins:object", summary="s"))
    assert training_name(RunConfig.model_validate({"training": {"pipeline_parallel_size": 2}}), registry)[0] == "colossalai"


def test_the_options_of_a_runtime_are_validated_by_its_own_model(registry: Registry) -> None:
    found = plan(registry, "run.options.scale=--scale 2", runtime="threads")
    assert found.runtime_options is not None
    assert found.runtime_options.model_dump() == {"scale": 2.0}
    assert found.config.run.options == {"scale": 2.0}
    assert "[run.options]" in found.to_toml()
    with pytest.raises(ConfigError, match=r"options\.nothing"):
        plan(registry, run={"options": {"nothing": 1}, "runtime": "threads"})


def test_everything_that_reads_auto_is_resolved_and_said(registry: Registry) -> None:
    found = plan(registry, "training.train_batch_size=-tbs 16; sampling.max_new_tokens=-mnt 100; schedule.max_staleness=--max-staleness 2")
    config = found.config
    assert (config.run.runtime, config.training.name, config.weights.transport) == ("local", "torch", "shared")
    assert (config.inference.inference_batch_size, config.inference.inference_microbatch_size) == (16, 16)
    assert (config.training.train_minibatch_size, config.training.train_microbatch_size) == (16, 128)
    assert (config.algorithm.cache_length, config.schedule.data_actor_buffer_size_limit) == (25, 48)
    autos = {path for path, origin in found.origins.items() if origin.layer == "auto"}
    assert config.inference.max_in_flight == 16
    assert len(autos) == 17
    assert all(any(note.startswith(f"{path} = ") for note in found.notes) for path in autos)


@pytest.mark.parametrize(
    ("environment", "staleness", "most", "why"),
    [
        ("game", 2, 12, "(max_staleness + 1) x train_batch_size: as many as keep the engine busy"),
        ("game", 0, 3, "inference_batch_size: max_staleness 0"),
        ("none", 2, 3, "inference_batch_size: no environment"),
    ],
)
def test_more_prompts_are_in_flight_if_episodes_may_leave_the_engine_idle(environment: str, staleness: int, most: int, why: str) -> None:
    values = {
        "training": {"train_batch_size": 4},
        "inference": {"inference_batch_size": 3},
        "schedule": {"max_staleness": staleness},
        "sampling": {"environment": environment},
    }
    assert NUMBERS["inference.max_in_flight"](RunConfig.model_validate(values)) == (most, why)


@pytest.mark.parametrize(
    ("values", "path", "value"),
    [
        ({"num_trainers": 2}, "run.runtime", "ray"),
        ({"num_inferencer": 2}, "run.runtime", "ray"),
        ({"master_address": "10.0.0.3"}, "run.runtime", "ray"),
        ({"max_new_tokens": 8192}, "algorithm.cache_length", 1024),
        ({"train_minibatch_size": 2, "num_generations": 4}, "training.train_microbatch_size", 8),
        ({"max_staleness": 0}, "algorithm.old_logprobs", "trainer"),
        ({"updates_per_batch": 2}, "algorithm.old_logprobs", "rollout"),
        ({"epochs_per_batch": 2}, "algorithm.old_logprobs", "rollout"),
        ({"max_staleness": 1}, "algorithm.old_logprobs", "rollout"),
        ({"max_staleness": 1, "mismatch_correction": "truncated"}, "algorithm.old_logprobs", "trainer"),
        ({"mismatch_correction": "none"}, "algorithm.mismatch_range", None),
        ({"mismatch_correction": "decoupled"}, "algorithm.mismatch_range", None),
        ({"mismatch_correction": "truncated"}, "algorithm.mismatch_range", (0.0, 2.0)),
        ({"mismatch_correction": "masked"}, "algorithm.mismatch_range", (0.5, 5.0)),
        ({"mismatch_correction": "sequence_truncated"}, "algorithm.mismatch_range", (0.0, 2.0)),
        ({"mismatch_correction": "sequence_masked"}, "algorithm.mismatch_range", (0.0, 2.0)),
        ({"max_staleness": 1, "top_p": 0.9}, "algorithm.old_logprobs", "trainer"),
        ({"max_staleness": 1, "top_k": 9}, "algorithm.old_logprobs", "trainer"),
    ],
)
def test_auto(values: dict[str, Any], path: str, value: object, registry: Registry) -> None:
    config: Any = plan(registry, **values).config
    section, _, key = path.partition(".")
    assert getattr(getattr(config, section), key) == value


def test_what_is_missing_comes_with_a_command(registry: Registry) -> None:
    found = plan(
        registry,
        "algorithm.name=-a DAPO; inference.name=-b there; log.trackers=--trackers wandb; model.model=-m ./absent",
        dataset="absent.jsonl",
    )
    assert found.missing == (
        Missing("algorithm DAPO is not installed", install_line("rlcore-plugin-dapo")),
        Missing(
            "inference backend there needs the module no_such_engine, which is not installed", "pip install rlcore-plugin-acme[engine]"
        ),
        Missing("training backend torch is not installed", install_line("rlcore-plugin-torch")),
        Missing("tracker wandb is not installed", install_line("rlcore-plugin-trackers")),
        Missing("model ./absent is not found here", "type -m and the folder of a checkpoint, or a hub name org/name"),
        Missing("data set absent.jsonl is not found here", "type -d and the path of an existing file"),
    )


def test_a_held_out_file_that_is_missing_is_told_with_its_task(registry: Registry) -> None:
    found = plan(registry, dataset="absent.jsonl", eval_dataset={"same": "absent.jsonl", "held": "digits:1"})
    assert [str(item) for item in found.missing if item.what.startswith("data set")] == [
        "data set absent.jsonl is not found here: type -d and the path of an existing file",
        "data set digits:1 is not found here: name an existing file, or a data source, for the held-out task held in eval_dataset (-ed)",
    ]


def test_an_engine_of_another_environment_is_not_looked_for_here(registry: Registry) -> None:
    here = plan(registry, "inference.name=-b there").missing
    apart = plan(registry, "inference.name=-b there; inference.environment=--inference-environment ./other").missing
    assert any("no_such_engine" in part.what for part in here)
    assert not any("no_such_engine" in part.what for part in apart)


def test_a_data_source_that_is_not_installed_is_missing_for_training_and_for_evaluation(registry: Registry) -> None:
    found = plan(registry, dataset="a.csv", eval_dataset={"one": "b.csv", "two": "c.parquet"})
    tables = install_line("rlcore-plugin-datasets")
    missing = [item for item in found.missing if item.what.startswith("data")]
    assert missing == [Missing(f"data source {name} is not installed", tables) for name in ("csv", "parquet")]


def test_a_row_format_that_is_not_installed_is_missing_and_an_unknown_one_is_refused(registry: Registry, tmp_path: Path) -> None:
    found = plan(registry, "data.format=--data-format verl")
    assert Missing("row format verl is not installed", install_line("rlcore-plugin-datasets")) in found.missing
    file = tmp_path / "a.toml"
    file.write_text('[data]\nformat = "virl"\n', encoding="utf-8")
    with pytest.raises(PluginError, match=r"a.toml, line 2: there is no row format 'virl', did you mean 'verl'"):
        plan_run([file], {}, registry, require=False)


def test_a_hub_name_is_not_missing(registry: Registry) -> None:
    found = plan(registry)
    assert not any("model" in item.what for item in found.missing)
    assert any("org/model is not a folder here, so it is loaded from the Hugging Face Hub" in note for note in found.notes)


def test_an_unknown_name_says_where_it_stands(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[inference]\nname = "hier"\n', encoding="utf-8")
    with pytest.raises(PluginError, match=r"a.toml, line 2: there is no inference backend 'hier', did you mean 'here'"):
        plan_run([file], {}, registry, require=False)


def test_a_typed_configuration_is_a_layer_too(registry: Registry) -> None:
    config = RunConfig.model_validate({"training": {"train_batch_size": 4}})
    found = plan_run([], {}, registry, overrides=config.model_dump(exclude_unset=True), require=False)
    assert found.config.training.train_batch_size == 4
    assert found.origins["training.train_batch_size"].layer == "python"
    assert found.origins["training.zero_stage"].layer == "core"


def reward_file(tmp_path: Path, text: str, name: str = "rewards.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_deadline_is_the_reward_s_own_unless_a_file_or_a_flag_sets_it(registry: Registry, tmp_path: Path) -> None:
    spec = registry.spec("reward", "long")
    assert isinstance(spec, RewardSpec)
    own = plan(registry)
    assert own.config.rewards[0].deadline == spec.deadline == 17.0
    assert own.origins["rewards.0.deadline"] == Origin("auto", "auto: the deadline that reward long declares")
    file = reward_file(tmp_path, '[[rewards]]\nname = "long"\ndeadline = 3.0\n')
    filed = plan_run([file], {}, registry, require=False)
    assert filed.config.rewards[0].deadline == 3.0
    assert filed.origins["rewards.0.deadline"] == Origin("file", str(file))
    flagged = plan_run([file], flags("rewards.deadline=--reward-deadline 4"), registry, require=False)
    assert flagged.config.rewards[0].deadline == 4.0
    assert flagged.origins["rewards.0.deadline"] == Origin("flag", "--reward-deadline")


CONFIGURED = """
[[rewards]]
name = "short"
deadline = 2.0
[[rewards]]
name = "long"
weight = 2.0
deadline = 3.0
policy = { error = "stop" }
[rewards.budget]
timeout = 0.25
[rewards.options]
depth = 7
"""


@pytest.mark.parametrize("said", ["rewards=-rt LONG", "python"])
def test_a_reward_that_is_named_again_keeps_what_the_file_says_of_it(said: str, registry: Registry, tmp_path: Path) -> None:
    file = reward_file(tmp_path, CONFIGURED)
    typed, overrides = (flags(""), {"rewards": "long"}) if said == "python" else (flags(said), {})
    found = plan_run([file], typed, registry, overrides=overrides, require=False)
    (entry,) = found.config.rewards
    assert (entry.weight, entry.deadline, entry.options["depth"]) == (2.0, 3.0, 7)
    assert (entry.policy.error, entry.policy.timeout, entry.budget.timeout, entry.budget.error) == ("stop", "mask", 0.25, None)
    assert found.origins["rewards.0.deadline"] == found.origins["rewards.0.policy.error"] == Origin("file", str(file))
    assert found.origins["rewards.0.budget.timeout"] == Origin("file", str(file))
    assert found.origins["rewards.0.policy.timeout"] == found.origins["rewards.0.budget.error"] == Origin("core", "default")
    assert found.origins["rewards.0.name"].layer == ("python" if said == "python" else "flag")


def test_another_reward_inherits_nothing(registry: Registry, tmp_path: Path) -> None:
    files = [reward_file(tmp_path, CONFIGURED), reward_file(tmp_path, '[[rewards]]\nname = "long"\n', "later.toml")]
    replaced = plan_run(files, {}, registry, require=False)
    assert replaced.config.rewards[0].deadline == 17.0, "a file's list replaces a list"
    assert replaced.origins["rewards.0.deadline"].layer == "auto"
    other = plan_run(files, flags("rewards=-rt short"), registry, require=False)
    assert other.origins["rewards.0.deadline"].layer == "auto"
    assert [entry.name for entry in other.config.rewards] == ["short"]
    named = plan_run(files[:1], flags("rewards=-rt short"), registry, overrides={"rewards": "long"}, require=False)
    assert named.config.rewards[0].weight == 1.0
    assert named.origins["rewards.0.weight"] == Origin("core", "default"), "the file weighs long, not short"


def test_policy_and_budget_survive_being_written_and_read(registry: Registry, tmp_path: Path) -> None:
    found = plan_run([reward_file(tmp_path, CONFIGURED)], {}, registry, require=False)
    again = plan_run([reward_file(tmp_path, found.to_toml(), "again.toml")], {}, registry, require=False)
    assert again.config == found.config
