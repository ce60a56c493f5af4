"""`make gpu-engines` without a GPU: what it says, what it runs, its exit codes. The GPU and the environment are scripts of the test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_engines
from benchmarks.gpu.setting import REPOSITORY
from benchmarks.gpu_engines import ENGINE, PARTS, command


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one GPU, by its name; an environment whose Python does what the file ``does`` says."""
    monkeypatch.setattr(gpu_engines, "_devices", lambda: ["Acme 1"])
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n. {tmp_path}/does\n')
    python.chmod(0o755)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "run.toml").touch()
    for name in ("venv", "trl"):
        (tmp_path / f"{name}-installed").touch()
    return tmp_path


def test_without_a_gpu_it_says_so_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command(["--folder", str(tmp_path / "made")]) == 2
    printed = capsys.readouterr()
    assert printed.err == "make gpu-engines: this machine has no NVIDIA GPU (nvidia-smi names none), so nothing was run\n"
    assert printed.out == ""
    assert not (tmp_path / "made").exists()


def test_without_an_index_it_says_so_and_the_environment_does_not_count_as_made(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "venv-installed").unlink()
    (machine / "does").write_text("echo no index; exit 1\n")
    monkeypatch.setattr(gpu_engines.venv, "create", lambda *_, **__: None)
    assert command(["--folder", str(machine)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("make gpu-engines: pip could not install vllm, so nothing was run: it needs a package index; ")
    assert said.endswith("venv-install.log ends: no index")
    assert not (machine / "venv-installed").exists()
    assert f"-e {ENGINE}[engine]" in (machine / "asked").read_text()


def test_every_part_runs_and_the_last_line_is_one_json_object(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = {"0.6b": {"works": True, "said": "a step 1.00 s with rlcore", "ways": {}}}
    (machine / "does").write_text(f"""echo '{json.dumps({"steps": 3, "accuracy_after": 0.95, "shapes": shapes})}'\n""")
    assert command(["--folder", str(machine)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["failed"], found["not_run"], found["devices"]) == ([], ["nccl"], ["Acme 1"])
    assert list(found["parts"]) == [part.name for part in PARTS]
    assert found["parts"]["colocated"]["said"] == "3 updates, accuracy 0.95"
    assert found["parts"]["nccl"]["said"] == "it takes 2 devices, and this machine has 1"
    assert found["parts"]["peers"] == {**found["parts"]["peers"], "status": "done", "said": "0.6b: a step 1.00 s with rlcore"}
    assert found["parts"]["peers"]["figures"] == shapes
    asked = (machine / "asked").read_text()
    assert f"benchmarks.peers.on_device --peer {machine}/trl/bin/python --device cuda --engine vllm" in asked
    assert "--placement colocated --max-staleness 0 --max-steps 10 -ei 0 --transport vllm_ipc" in asked


def test_a_part_that_fails_or_learns_nothing_is_named(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (machine / "does").write_text("""echo '{"steps": 3, "accuracy_after": 0.5}'; case "$*" in *"-m pytest"*) exit 1;; esac\n""")
    assert command(["--folder", str(machine), "--only", "suite", "--only", "colocated"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == ["suite", "colocated"]
    assert found["parts"]["colocated"]["said"] == "accuracy 0.5 after 3 updates, 0.9 is expected"


def test_trl_gets_the_vllm_that_it_names_and_what_cannot_be_installed_is_not_run(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "trl-installed").unlink()
    (machine / "trl" / "bin").mkdir(parents=True)
    (machine / "trl" / "bin" / "python").write_text(f'#!/bin/sh\necho "$@" >> {machine}/asked\necho no index; exit 1\n')
    (machine / "trl" / "bin" / "python").chmod(0o755)
    monkeypatch.setattr(gpu_engines.venv, "create", lambda *_, **__: None)
    assert command(["--folder", str(machine), "--only", "peers"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["failed"], found["not_run"]) == ([], ["peers"])
    assert found["parts"]["peers"]["said"].startswith("pip could not install vllm, so nothing was run: it needs a package index; ")
    assert (machine / "asked").read_text().split("-m pip install ")[1].startswith("trl[vllm]==")


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("""echo '{"shapes": {"0.6b": {"works": false, "said": "TRL does not work: no"}}}'; exit 1""", "0.6b: TRL does not work: no"),
        ("echo Killed; exit 137", "peers.log ends: Killed"),
    ],
)
def test_a_side_that_does_not_work_fails_the_part(machine: Path, capsys: pytest.CaptureFixture[str], does: str, said: str) -> None:
    (machine / "does").write_text(f"{does}\n")
    assert command(["--folder", str(machine), "--only", "peers"]) == 1
    part = json.loads(capsys.readouterr().out)["parts"]["peers"]
    assert part["status"] == "failed"
    assert part["said"].endswith(said)


def test_what_it_runs_is_there() -> None:
    for part in PARTS:
        assert all((REPOSITORY / path.rpartition("=")[2]).exists() for path in part.tests), part.name
    assert all((REPOSITORY / path / "pyproject.toml").exists() for path in (*gpu_engines.CHECKOUT, ENGINE))
    assert 'engine = ["vllm>=0.32,<0.33"]' in (REPOSITORY / ENGINE / "pyproject.toml").read_text()


def test_the_machine_is_asked_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!{sys.executable}\nprint('Acme 1\\nAcme 2')\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_engines._devices() == ["Acme 1", "Acme 2"]
