"""Plugins whose targets are not what their kind promises: refused in one sentence that names plugin, distribution, kind and target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlcore.api import PluginError
from rlcore.testing import PluginFolder, RunTester

ENTRY = """
from rlcore.api import *
rlcore_api = "2.0"
{hooks}
"""
HOOK = """
@hookimpl
def rlcore_register_{hook}():
    return [{spec}(name="bad", target="rlcore_plugin_bad.{target}", summary="Broken"{more})]
"""
PARTS = """
from rlcore.api import *
from rlcore.api.commands import Command
from rlcore.api.conversations import Conversation
from rlcore.api.data import RowFormat, RowSource
from rlcore.api.runtime import Runtime
from rlcore.api.sandbox import Sandbox
from rlcore.api.weights import WeightTransfer

class Wrong:
    def __init__(self, *arguments): ...

def number(*arguments):
    return 3

NUMBER = 3

class Unfinished({base}): ...

class Raises({base}):
    {capabilities}
    def __init__(self, *arguments):
        raise OSError("no network today")
"""
KINDS = {
    "inference": (
        "inference_backends",
        "InferenceBackendSpec",
        ', tokenizer="rlcore.testing.tokens:load_fake_tokenizer"',
        "rlcore.api.InferenceBackend",
    ),
    "training": ("training_backends", "TrainingBackendSpec", "", "rlcore.api.TrainingBackend"),
    "estimator": ("advantage_estimators", "AdvantageSpec", "", "rlcore.api.AdvantageEstimator"),
    "loss": ("losses", "LossSpec", "", "rlcore.api.Loss"),
    "tracker": ("trackers", "TrackerSpec", "", "rlcore.api.Tracker"),
    "runtime": ("runtimes", "RuntimeSpec", "", "rlcore.api.runtime.Runtime"),
    "transfer": ("weight_transfers", "WeightTransferSpec", ', reach="process"', "rlcore.api.weights.WeightTransfer"),
    "sandbox": ("sandboxes", "SandboxSpec", "", "rlcore.api.sandbox.Sandbox"),
    "command": ("commands", "CommandSpec", "", "rlcore.api.commands.Command"),
    "data": ("data_sources", "DataSourceSpec", ', prefix="bad:"', "rlcore.api.data.RowSource"),
    "conversation": ("conversations", "ConversationSpec", "", "rlcore.api.conversations.Conversation"),
    "format": ("row_formats", "RowFormatSpec", "", "rlcore.api.data.RowFormat"),
}
CAPABILITIES = {
    "inference": "from rlcore.testing.inference.fake_inference import FakeInference; capabilities = FakeInference.capabilities",
    "training": "from rlcore.testing.training.fake_training import FakeTraining; capabilities = FakeTraining.capabilities",
}
LABELS = {
    "inference": "inference backend",
    "training": "training backend",
    "estimator": "advantage estimator",
    "transfer": "weight transfer",
    "data": "data source",
    "format": "row format",
}


def install(plugins: PluginFolder, kind: str, target: str, module: str = "parts") -> None:
    hook, spec, more, base = KINDS[kind]
    parts = (
        PARTS.format(base=base.rpartition(".")[2], capabilities=CAPABILITIES.get(kind, "")) + "\nRaises.__abstractmethods__ = frozenset()\n"
    )
    hooks = HOOK.format(hook=hook, spec=spec, target=f"{module}:{target}", more=more)
    plugins.install("bad", ENTRY.format(hooks=hooks), files={"parts.py": parts})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("Wrong", "is the class Wrong, it must be a class derived from {base}"),
        ("NUMBER", "is of type int, it must be a class derived from {base}"),
        ("Unfinished", "does not define "),
        ("Absent", "does not exist"),
    ],
)
def test_a_target_that_is_no_complete_class_of_its_kind_is_not_loaded(tmp_path: Path, kind: str, target: str, said: str) -> None:
    with PluginFolder(tmp_path / "site") as plugins:
        install(plugins, kind, target)
        with pytest.raises(PluginError) as refused:
            plugins.discover().load(kind, "bad")
    label = f"{LABELS.get(kind, kind)} 'bad' of rlcore-plugin-bad: its target 'rlcore_plugin_bad.parts:{target}'"
    assert str(refused.value).startswith(f"{label} {said.format(base=KINDS[kind][3])}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constructor_that_raises_is_blamed_on_its_plugin_and_the_cause_is_kept(tmp_path: Path, kind: str) -> None:
    with PluginFolder(tmp_path / "site") as plugins:
        install(plugins, kind, "Raises")
        with pytest.raises(PluginError) as refused:
            plugins.discover().make(kind, "bad", "context")
    label = f"{LABELS.get(kind, kind)} 'bad' of rlcore-plugin-bad"
    assert str(refused.value).startswith(f"{label} cannot be made: OSError: no network today (parts.py, line ")
    assert isinstance(refused.value.__cause__, OSError)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("inference", "training", "command")])
def test_a_function_that_makes_something_else_is_refused(tmp_path: Path, kind: str) -> None:
    with PluginFolder(tmp_path / "site") as plugins:
        install(plugins, kind, "number")
        with pytest.raises(
            PluginError, match=rf"'rlcore_plugin_bad\.parts:number' makes is of type int, it must be a .*{KINDS[kind][3][-4:]}$"
        ):
            plugins.discover().make(kind, "bad")


CHOICES: dict[str, dict[str, Any]] = {
    "runtime": {"run": {"runtime": "bad"}},
    "transfer": {"weights": {"transport": "bad"}},
    "data": {"data": {"dataset": "bad:rows"}},
    "conversation": {"sampling": {"conversation": "bad"}},
    "inference": {"inference": {"name": "bad"}},
    "training": {"training": {"name": "bad"}},
    "loss": {"algorithm": {"loss": "bad"}},
    "estimator": {"algorithm": {"estimator": "bad"}},
    "tracker": {"log": {"trackers": ["bad"]}},
}


# A tracker that cannot be made is switched off instead: tests/integration/test_run_settings.py.
RUNS = [(kind, target) for kind in CHOICES for target in ("Wrong", "Unfinished", "Raises") if (kind, target) != ("tracker", "Raises")]


@pytest.mark.parametrize(("kind", "target"), RUNS)
def test_a_run_with_it_ends_in_one_sentence_before_anything_is_written(tmp_path: Path, kind: str, target: str) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    install(tester.plugins, kind, target)
    done = tester.run("train", tester.fake_run(**CHOICES[kind]))
    words = ["no network today"] if target == "Raises" else [f"of rlcore-plugin-bad: its target 'rlcore_plugin_bad.parts:{target}'"]
    done.assert_refused(*words, "bad")


@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("words", [["train", "run.toml", "--dry-run"], ["train", "run.toml"], ["show", "config", "run.toml"]])
def test_a_target_whose_module_does_not_exist_is_refused_without_an_import(tmp_path: Path, kind: str, words: list[str]) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    install(tester.plugins, kind, "Thing", module="nowhere")
    tester.fake_run(**CHOICES[kind])
    label = f"{LABELS.get(kind, kind)} 'bad' of rlcore-plugin-bad: its target 'rlcore_plugin_bad.nowhere:Thing'"
    tester.run(*words).assert_refused(f"{label} does not exist: there is no module 'rlcore_plugin_bad.nowhere'")


def test_a_dry_run_says_that_it_imports_no_target_and_the_run_refuses_what_is_not_in_it(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    install(tester.plugins, "transfer", "Absent")
    tester.fake_run(**CHOICES["transfer"])
    assert "nothing is missing (plugins were found, not imported)" in tester.run("train", "run.toml", "--dry-run").assert_ok().stdout
    tester.run("train", "run.toml").assert_refused("weight transfer 'bad' of rlcore-plugin-bad", "parts:Absent' does not exist")


def test_a_held_out_data_set_and_a_sandbox_are_looked_for_too(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    install(tester.plugins, "data", "Thing", module="nowhere")
    tester.run("train", tester.fake_run(eval={"eval_dataset": {"say": "bad:rows"}}), "--dry-run").assert_refused(
        "data source 'bad'", "nowhere"
    )
    install(tester.plugins, "sandbox", "Thing", module="nowhere")
    tester.write(
        "boxed.py",
        "from pydantic import BaseModel, ConfigDict\nfrom rlcore.api import *\nfrom rlcore.api.sandbox import SandboxOptions\n"
        "class Boxed(Reward):\n    class Options(BaseModel):\n        model_config = ConfigDict(extra='forbid', frozen=True)\n"
        "        sandbox: SandboxOptions = SandboxOptions(backend='bad')\n"
        "    def __init__(self, options): ...\n    def score(self, item): ...\n",
    )
    tester.run("train", tester.fake_run(), "-rt", "./boxed.py:Boxed", "--dry-run").assert_refused("sandbox 'bad'", "nowhere:Thing'")


@pytest.mark.parametrize(("kind", "made"), [("inference", True), ("training", True), ("loss", False), ("runtime", False)])
def test_a_constructor_that_raises_keeps_its_traceback(tmp_path: Path, kind: str, made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names plugin, file and line, and what to type to see the traceback."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    install(tester.plugins, kind, "Raises")
    path = tester.fake_run(**CHOICES[kind])
    label = f"for the {LABELS.get(kind, f'{kind} backend')} bad of rlcore-plugin-bad cannot be loaded (" if made else "cannot be made: "
    said = f"{label}OSError: no network today (parts.py, line "
    tester.run("train", path).assert_refused(said, "RLCORE_TRACEBACK=1 shows the traceback")
    monkeypatch.setenv("RLCORE_TRACEBACK", "1")
    shown = tester.run("train", path)
    assert shown.exit_code == 2
    assert 'raise OSError("no network today")' in shown.stderr
    assert said in shown.stderr.splitlines()[-1]
    assert not shown.written
