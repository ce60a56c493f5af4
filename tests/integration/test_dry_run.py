"""``rlcore train --dry-run`` on real backends: it tells what ``train`` would refuse, opens no network and loads no model."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from unittest import mock

import pytest

from rlcore.api.commands import EXTRAS
from rlcore.registry.install import long_name
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import RunTester
from tests.quickstart_folder import quickstart_in

SLEEPLESS = """
from dataclasses import replace
from rlcore.api import InferenceBackendSpec, hookimpl
from rlcore.testing.fake_plugin import FAKE_INFERENCE
rlcore_api = "2.0"

@hookimpl
def rlcore_register_inference_backends():
    target, offered = "rlcore.testing.inference.fake_inference:FakeInference", replace(FAKE_INFERENCE, sleeps=False)
    return [InferenceBackendSpec(name="sleepless", target=target, summary="Keeps its device.", capabilities=offered)]
"""
OFFLINE = """
import socket, sys

def refused(*arguments):
    raise AssertionError(f"opened a socket: {arguments}")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refused
from rlcore.cli import main
for words in sys.argv[1:]:
    print(main(words.split()))
    print(sorted({"torch", "transformers", "ray", "datasets"} & set(sys.modules)))
"""
ABSENT = {"ray", "datasets", "rlcore_plugin_ray", "rlcore_plugin_datasets"}
NO_CUDA = "this machine has no CUDA device"

REFUSED = {
    "expert": (
        "--expert-parallel-size 2 --runtime ray",
        "--expert-parallel-size 2: training backend torch does not offer the layout expert (it offers data, single, tensor, zero); type",
    ),
    "tensor": ("-t 3 -tp 2", "-t 3 is not divisible by -tp 2 times"),
    "heads": ("-t 2 -tp 2", "rlcore-plugin-torch: training.tensor_parallel_size 2: the model has num_attention_heads 3, but every rank"),
    "targets": (
        "--lora-rank 4 --lora-targets c_attn",
        "rlcore-plugin-torch: training.lora_targets 'c_attn': in model 'base' (Qwen2ForCausalLM) this is not a linear layer; its",
    ),
    "pipeline": ("-t 2 -pp 2 --trainer torch", "-pp 2: training backend torch does not offer the layout pipeline"),
    "stages": (
        "--trainer colossalai -t 4 -pp 2 -zero 2 --training-dtype bfloat16",
        "rlcore-plugin-colossalai: training.zero_stage 2: with pipeline stages ColossalAI divides by ZeRO 1 only; type -zero 1",
    ),
    "producers": ("-ptp 2", "-ptp 2: inference backend transformers does not offer the layout tensor (it offers single); type -ptp 1"),
    "float16": (
        "--training-dtype float16",
        "--training-dtype float16: training.dtype (core) must be float32, bfloat16 or float64; type --training-dtype float32",
    ),
    "adapters": (
        "--lora-rank 16385",
        "--lora-rank 16385: training.lora_rank (core) must be a whole number from 0 to 16384; type --lora-rank 16384 or less",
    ),
    "float16-engine": ("--inference-dtype float16", "type --inference-dtype bfloat16 or float32"),
    "no-device": (
        "--training-device gpu",
        "--training-device gpu: training backend torch does not offer it; type --training-device auto or cpu or cuda",
    ),
    "cuda": ("--training-device cuda", f"--training-device cuda: {NO_CUDA}; type --training-device auto or cpu"),
    "cuda-engine": ("--inference-device cuda:1", f"--inference-device cuda:1: {NO_CUDA}; type --inference-device auto or cpu"),
    "folder": ("--run-dir run.toml/runs", "--run-dir run.toml/runs: the folder cannot be created, because run.toml is a file"),
    "kernel": ("--run-dir /proc/x", "--run-dir /proc/x: "),  # whoever is not root may not write there anyway, and is told that
    "kernel-saves": ("-sd /proc/x", "-sd /proc/x: "),
    "kernel-evaluations": ("-esd /sys/x", "-esd /sys/x: "),
    "kernel-rollouts": ("-rsd /proc", "-rsd /proc: "),
    "sleepless": (
        "-b sleepless --placement colocated --max-staleness 0",
        "--placement colocated lets generation and training alternate on one device, and inference backend sleepless never gives its",
    ),
}
EXACT = "--max-staleness 0"
FINE = [
    "",
    f"--training-dtype bfloat16 {EXACT}",
    f"--training-dtype float64 {EXACT}",
    "--placement colocated",
    f"--training-device cpu --inference-device cpu {EXACT}",
    f"-zero 0 -tp 1 -ptp 1 {EXACT}",
]


def refused(*arguments: object, **named: object) -> NoReturn:
    raise AssertionError(f"opened a socket: {arguments}")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quickstart_in(tmp_path_factory.mktemp("assets") / "demo", tmp_path_factory, train=128, heldout=8)


@pytest.fixture
def tester(quickstart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTester:
    """The run of the quickstart, as on a machine without a GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    tester = RunTester(tmp_path, in_process=True)
    tester.plugins.install("sleepless", SLEEPLESS)
    shutil.copytree(quickstart, tmp_path, dirs_exist_ok=True)
    return tester


@pytest.mark.parametrize("name", REFUSED)
def test_a_dry_run_and_train_refuse_the_same_in_the_same_sentence(name: str, tester: RunTester) -> None:
    flags, said = REFUSED[name]
    dry = tester.run("train", "run.toml", *flags.split(), "--dry-run").assert_refused(said)
    assert tester.run("train", "run.toml", *flags.split()).assert_refused(said).stderr == dry.stderr


@pytest.mark.parametrize("flags", FINE)
def test_what_a_dry_run_lets_pass_is_trained(flags: str, tester: RunTester) -> None:
    done = tester.run("train", "run.toml", *flags.split(), "--dry-run").assert_ok()
    assert "nothing is missing" in done.stdout
    assert not done.written
    tester.run("train", "run.toml", *flags.split(), "--max-steps", "1", "-tbs", "2", "-g", "2", "-ei", "0").assert_ok()


def test_a_device_that_other_machines_may_have_is_a_remark(tester: RunTester) -> None:
    done = tester.run("train", "run.toml", "--runtime", "ray", "--training-device", "cuda", "--dry-run").assert_ok()
    assert f"  --training-device cuda: {NO_CUDA}, so the trainers must run on other machines" in done.lines


def test_a_configuration_for_another_machine_can_be_shown_and_launched(tester: RunTester) -> None:
    typed = ["run.toml", "--training-device", "cuda", "--run-dir", "run.toml/runs"]
    tester.run("show", "config", *typed).assert_ok()
    tester.run("launch", "slurm", *typed, "-t", "2", "--nodes", "1", "--gpus-per-node", "4", "--time", "1:00:00", "--dry-run").assert_ok()


def test_a_part_that_is_merely_not_installed_is_a_remark(tester: RunTester) -> None:
    bare = RunTester(tester.folder, in_process=True).with_only(*map(long_name, EXTRAS["quickstart"]))
    done = bare.run("train", "run.toml", "--trackers", "wandb", "--dry-run").assert_ok()
    assert "missing: train would refuse to start" in done.stdout
    assert "tracker wandb is not installed" in done.stdout


def test_a_dry_run_opens_no_network_and_imports_no_model_library(tester: RunTester) -> None:
    program = tester.write("offline.py", OFFLINE)
    ray = ["--runtime", "ray", "-t", "2", "--master-address", "10.0.0.1"]
    divided = [*ray, "-m", "org/model", "-tp", "2"]  # what a plan of the model says, torch alone knows
    lines = [" ".join(["train", "run.toml", *flags, "--dry-run"]) for flags in ([], ["-m", "org/model"], ["-d", "hf:org/data"], ray)]
    done = subprocess.run(
        [sys.executable, str(program), *lines],
        cwd=tester.folder,
        env=tester.plugins.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    said = [line for line in done.stdout.splitlines() if line in ("0", "1", "2") or line.startswith("[")]
    assert said == ["0", "[]"] * 4, done.stdout
    sockets = mock.patch.multiple(socket.socket, connect=refused, connect_ex=refused), mock.patch.object(socket, "getaddrinfo", refused)
    with mock.patch.dict(sys.modules), sockets[0], sockets[1]:
        for name in [name for name in sys.modules if name.split(".")[0] in ABSENT]:
            del sys.modules[name]  # this process has torch and transformers, and must not need the others again
        tester.run("train", "run.toml", *divided, "--dry-run").assert_ok()
        assert not {"ray", "datasets"} & set(sys.modules)


def test_every_backend_that_is_installed_declares_its_capabilities() -> None:
    registry = Registry.discover()
    assert registry.names("training")
    for kind in ("inference", "training"):
        for name in registry.names(kind):
            spec = registry.spec(kind, name)
            assert spec.capabilities is not None, (kind, name)
            if find_spec(spec.requires_module or "sys") is not None:  # else its engine has an environment of its own, and tests there
                assert registry.load(kind, name).capabilities == spec.capabilities, (kind, name)  # type: ignore[attr-defined]


def test_a_strangers_settings_do_not_steer_the_terminal(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    hostile = "a\x1b]0;owned\x07\x9b2J\u202eb"
    run = tester.fake_run(data={"system_prompt": hostile}, eval={"eval_dataset": {"heldout": f"hf:{hostile}"}})
    for words in (("train", run, "--dry-run"), ("show", "config", run), ("eval", "model", run, "--dry-run")):
        said = tester.run(*words).assert_ok().stdout
        assert all(character.isprintable() for line in said.split("To paste")[0].splitlines() for character in line), words
        assert r"a\x1b]0;owned\x07\x9b2J\u202eb" in said
