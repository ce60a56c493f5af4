"""Every hook in the manual is documented, and one plugin that implements them all sees each of them called."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from json import JSONDecoder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rlcore_plugin_tools.arguments.plan_arguments import translated

from rlcore.api import RunInfo
from rlcore.cli.line_display import shown
from rlcore.config import RunConfig, plan_run
from rlcore.config.machine_check import check_machine
from rlcore.config.remarks import remarks
from rlcore.contracts import hookspecs
from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import REGISTERING_HOOKS, SPEC_OF_KIND, PluginKind
from rlcore.data.tokenizer import tokenizer_class
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime.arguments import plan_arguments
from rlcore.runtime.listeners import Listeners
from rlcore.testing.plugin_folder import PluginFolder

HOOKS: dict[str, Callable[..., Any]] = {name: value for name, value in vars(hookspecs).items() if name.startswith("rlcore_")}

EVERY_HOOK = """
from rlcore.api import *
rlcore_api = "2.0"
calls = {}

@hookimpl
def rlcore_register_rewards():
    calls["rlcore_register_rewards"] = ()
    return [RewardSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_inference_backends():
    calls["rlcore_register_inference_backends"] = ()
    return [InferenceBackendSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_training_backends():
    calls["rlcore_register_training_backends"] = ()
    return [TrainingBackendSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_advantage_estimators():
    calls["rlcore_register_advantage_estimators"] = ()
    return [AdvantageSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_losses():
    calls["rlcore_register_losses"] = ()
    return (LossSpec(name="all", target="a.b:C", summary="All"),)

@hookimpl
def rlcore_register_aggregations():
    calls["rlcore_register_aggregations"] = ()
    return [AggregationSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_lr_schedules():
    calls["rlcore_register_lr_schedules"] = ()
    return [LearningRateScheduleSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_model_hooks():
    calls["rlcore_register_model_hooks"] = ()
    return [ModelHookSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_filters():
    calls["rlcore_register_filters"] = ()
    return [GroupFilterSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_optimizers():
    calls["rlcore_register_optimizers"] = ()
    return [OptimizerSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_samplers():
    calls["rlcore_register_samplers"] = ()
    return [SamplerSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_kl_estimators():
    calls["rlcore_register_kl_estimators"] = ()
    return [KlSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_corrections():
    calls["rlcore_register_corrections"] = ()
    return [CorrectionSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_algorithms():
    calls["rlcore_register_algorithms"] = ()
    return [AlgorithmSpec(name="all", estimator="all", loss="all", summary="All")]

@hookimpl
def rlcore_register_controllers():
    calls["rlcore_register_controllers"] = ()
    return [ControllerSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_trackers():
    calls["rlcore_register_trackers"] = ()
    return [TrackerSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_runtimes():
    calls["rlcore_register_runtimes"] = ()
    return [RuntimeSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_weight_transfers():
    calls["rlcore_register_weight_transfers"] = ()
    return [WeightTransferSpec(name="all", target="a.b:C", summary="All", reach="host")]

@hookimpl
def rlcore_register_sandboxes():
    calls["rlcore_register_sandboxes"] = ()
    return [SandboxSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_commands():
    calls["rlcore_register_commands"] = ()
    return [CommandSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_data_sources():
    calls["rlcore_register_data_sources"] = ()
    return [DataSourceSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_conversations():
    calls["rlcore_register_conversations"] = ()
    return [ConversationSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_environments():
    calls["rlcore_register_environments"] = ()
    return [EnvironmentSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_register_row_formats():
    calls["rlcore_register_row_formats"] = ()
    return [RowFormatSpec(name="all", target="a.b:C", summary="All")]

@hookimpl
def rlcore_check_run(config):
    calls["rlcore_check_run"] = (config,)
    return ["no"]

@hookimpl
def rlcore_note_run(config):
    calls["rlcore_note_run"] = (config,)
    return ["note"]

@hookimpl
def rlcore_note_data(config, data):
    calls["rlcore_note_data"] = (config, data)
    return ["note of data"]

@hookimpl
def rlcore_remark_run(facts):
    calls["rlcore_remark_run"] = (facts,)
    return ["remark"]

@hookimpl
def rlcore_check_machine(plan):
    calls["rlcore_check_machine"] = (plan.config.run.project,)
    return ["a small machine"] if plan.config.run.seed else [1 / 0]

@hookimpl
def rlcore_adapt_function(kind, function):
    calls["rlcore_adapt_function"] = (kind, function)

@hookimpl
def rlcore_translate_arguments(arguments):
    calls["rlcore_translate_arguments"] = (dict(arguments),)

@hookimpl
def rlcore_plan_arguments():
    calls["rlcore_plan_arguments"] = ()
    return "operator:or_"

@hookimpl
def rlcore_tokenizer_class():
    calls["rlcore_tokenizer_class"] = ()
    return "json:JSONDecoder"

@hookimpl
def rlcore_open_display(console):
    calls["rlcore_open_display"] = (console,)

@hookimpl
def rlcore_run_started(run):
    calls["rlcore_run_started"] = (run,)

@hookimpl
def rlcore_groups_scored(groups, version):
    calls["rlcore_groups_scored"] = (groups, version)

@hookimpl
def rlcore_step_finished(step, metrics):
    calls["rlcore_step_finished"] = (step, dict(metrics))

@hookimpl
def rlcore_note_step(step, metrics):
    calls["rlcore_note_step"] = (step, dict(metrics))
    return ["look"]

@hookimpl
def rlcore_checkpoint_saved(step, folder):
    calls["rlcore_checkpoint_saved"] = (step, folder)

@hookimpl
def rlcore_run_timed(folder, rows):
    calls["rlcore_run_timed"] = (folder, rows)

@hookimpl
def rlcore_run_finished(summary):
    calls["rlcore_run_finished"] = (dict(summary),)
"""


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_says_what_it_is_for_and_since_when(name: str) -> None:
    text = inspect.getdoc(HOOKS[name]) or ""
    assert re.search(r"Since \d+\.\d+\.", text), f"{name} must say 'Since major.minor.'"
    assert len(text.split()) >= 4
    signature = inspect.signature(HOOKS[name])
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in signature.parameters.values())


def test_every_kind_has_its_registering_hook_and_spec() -> None:
    assert set(REGISTERING_HOOKS) == {name for name in HOOKS if name.startswith("rlcore_register_")}
    assert sorted(REGISTERING_HOOKS.values()) == sorted(PluginKind) == sorted(SPEC_OF_KIND)


@pytest.mark.parametrize("name", REGISTERING_HOOKS)
def test_a_registering_hook_is_written_out_once_and_returns_specs_of_its_kind(name: str) -> None:
    assert Path(hookspecs.__file__).read_text(encoding="utf-8").count(f"def {name}(") == 1, "grep must find the manual"
    assert inspect.signature(HOOKS[name]).return_annotation == f"Sequence[{SPEC_OF_KIND[REGISTERING_HOOKS[name]].__name__}]"
    assert "Called once, when rlcore discovers" in (inspect.getdoc(HOOKS[name]) or "")


def test_every_hook_is_called_with_what_the_manual_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("every", EVERY_HOOK)
        registry = folder.discover()
        assert registry.check_run("config") == ["rlcore-plugin-every: no"]
        assert registry.check_run("config", "rlcore_note_run") == ["rlcore-plugin-every: note"]
        assert registry.check_run("config", "rlcore_note_data", data={}) == ["rlcore-plugin-every: note of data"]
        facts: Any = "facts"
        assert list(remarks(facts, registry)) == ["remark"]
        plans = [
            replace(
                plan_run([], {}, Registry.discover([]), require=False, overrides={"run_dir": str(tmp_path), "seed": seed}),
                registry=registry,
            )
            for seed in (0, 3)
        ]
        assert check_machine(plans[1]).notes[-1] == "a small machine"
        with pytest.raises(PluginError, match="rlcore-plugin-every: rlcore_check_machine raised ZeroDivisionError: division by zero"):
            check_machine(plans[0])
        assert translated(registry, {"seed": 1}) == {"seed": 1}
        registry.add("reward", len)
        monkeypatch.setattr(Registry, "discover", lambda: registry)
        assert tokenizer_class() is JSONDecoder
        assert plan_arguments({"seed": 1}, {}) == {"seed": 1}  # the plugin's function
        console: Any = Console()
        with shown(console, registry):
            pass
        config = RunConfig()
        plan: Any = SimpleNamespace(config=config, tracker_options=(), registry=registry, resume=None)
        run = RunInfo(folder=tmp_path, config=config.plain())
        told: list[str] = []
        with Listeners(plan, tmp_path, told.append) as listeners:
            listeners.groups_scored([], 3)
            listeners.step_finished(1, {"reward": 1.0})
            listeners.checkpoint_saved(1, tmp_path)
            listeners.run_timed([("p0", "producer", "generation", 5.0, 1.0)])
            listeners.run_finished({"steps": 1})
        calls = importlib.import_module("rlcore_plugin_every").calls
        assert listeners.switched_off == {}
        assert listeners.warnings == ["after update 1: look"]
        assert told == ["warning: after update 1: look"]
        assert set(calls) == set(HOOKS)
        assert {name: arguments for name, arguments in calls.items() if not name.startswith("rlcore_register_")} == {
            "rlcore_check_run": ("config",),
            "rlcore_note_run": ("config",),
            "rlcore_note_data": ("config", {}),
            "rlcore_remark_run": ("facts",),
            "rlcore_check_machine": ("rlcore",),
            "rlcore_adapt_function": (PluginKind.REWARD, len),
            "rlcore_translate_arguments": ({"seed": 1},),
            "rlcore_plan_arguments": (),
            "rlcore_tokenizer_class": (),
            "rlcore_open_display": (console,),
            "rlcore_run_started": (run,),
            "rlcore_groups_scored": ((), 3),
            "rlcore_step_finished": (1, {"reward": 1.0}),
            "rlcore_note_step": (1, {"reward": 1.0}),
            "rlcore_checkpoint_saved": (1, tmp_path),
            "rlcore_run_timed": (tmp_path, (("p0", "producer", "generation", 5.0, 1.0),)),
            "rlcore_run_finished": ({"steps": 1},),
        }
        assert all(registry.spec(kind, "ALL").name == "all" for kind in PluginKind)
