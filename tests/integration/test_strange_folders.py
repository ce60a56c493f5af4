"""The run or model folder of a stranger, who can write its hashes too: nothing in it is executed as data, or by a command that reads."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore.contracts.errors import DataError
from rlcore.contracts.types import Message
from rlcore.data.tokenizer import load_tokenizer
from rlcore.runlog.past_runs import past_runs
from rlcore.testing import RunTester
from tests.letters_model import write_model


class Calls:
    """Pickles as a call."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of a run of real backends, whole."""
    folder = tmp_path_factory.mktemp("strange")
    write_model(folder / "tiny")
    tester = RunTester(folder, in_process=True).with_fakes()
    config = tester.fake_run(
        run={"num_episodes": 20, "max_steps": 2},
        log={"save_interval": 1, "rollout_interval": 1},
        inference={"name": "transformers"},
        training={"name": "torch"},
        model={"model": "tiny"},
    )
    tester.run("train", config).assert_ok()
    return folder


@pytest.fixture
def project(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept, tmp_path / "project")


def run_of(project: Path) -> Path:
    (found,) = past_runs(project / "runs" / "rlcore")
    return found.root


def sealed(checkpoint: Path, file: Path, content: bytes) -> None:
    """Write a file of a checkpoint, and every hash of it."""
    file.write_bytes(content)
    beside = file.with_name(f"{file.name}.sha256")
    beside.write_text(f"{hashlib.sha256(content).hexdigest()}  {file.name}\n")
    marker = json.loads((checkpoint / "checkpoint.json").read_text())
    for path in (file, beside):
        held = path.read_bytes()
        marker["files"][str(path.relative_to(checkpoint))] = {"bytes": len(held), "sha256": hashlib.sha256(held).hexdigest()}
    (checkpoint / "checkpoint.json").write_text(json.dumps(marker))


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize("flags", [("--runtime", "in_process"), ("-t", "2")], ids=["one rank", "two ranks"])
def test_an_index_that_runs_a_command_is_refused_before_the_run_folder_changes(project: Path, flags: tuple[str, ...]) -> None:
    run, made = run_of(project), project / "made"
    checkpoint = run / "checkpoints" / "step-2"
    sealed(checkpoint, checkpoint / "trainer/shards/.metadata", pickle.dumps(Calls(os.system, (f"touch {made}",))))
    before = everything(run)
    tester = RunTester(project, in_process=True).with_fakes()
    done = tester.run("resume", str(run), "--max-steps", "3", *flags)
    assert (done.exit_code, "Traceback" in done.stderr) == (2, False), done
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    place = checkpoint / "trainer/shards/.metadata"
    assert said == (
        f"error: {place}: it names {os.system.__module__}.system, which no index of tensors needs; it was not executed; "
        "resume from a checkpoint that rlcore wrote: type --step N with another one"
    )
    assert not made.exists()
    assert everything(run) == before
    if "in_process" in flags:
        tester.run("resume", str(run), "--max-steps", "3", "--step", "1").assert_ok()


@pytest.mark.parametrize("file", ["trainer/trainer.pt", "trainer/consumer.json", "state.json"])
def test_no_other_file_of_a_trainers_state_is_executed(project: Path, file: str) -> None:
    run, made = run_of(project), project / "made"
    checkpoint = run / "checkpoints" / "step-2"
    sealed(checkpoint, checkpoint / file, pickle.dumps(Calls(os.system, (f"touch {made}",))))
    done = RunTester(project, in_process=True).with_fakes().run("resume", str(run), "--max-steps", "3", "--step", "2")
    assert done.exit_code in (1, 2), done
    assert not made.exists()


_READING = [
    ("runs", "{project}/runs/rlcore"),
    ("compare", "{run}", "{other}"),
    ("rollouts", "{run}", "--json"),
    ("report", "{run}", "-o", "{project}/report.html"),
]


@pytest.mark.parametrize("words", _READING, ids=lambda words: words[0])
def test_commands_that_read_a_run_import_nothing_that_it_names(project: Path, words: tuple[str, ...]) -> None:
    run, made = run_of(project), project / "made"
    (project / "evil.py").write_text(f"open({str(made)!r}, 'w').close()\n")
    settings = (run / "run.toml").read_text()
    for name in ("fake", "torch", "transformers"):
        settings = settings.replace(f'name = "{name}"', f'name = "{project}/evil.py:Any"')
    assert "evil.py" in settings
    (run / "run.toml").write_text(settings)
    (run / "evil.py").write_text(f"open({str(made)!r}, 'w').close()\n")
    other = shutil.copytree(run, project / "other")
    typed = [word.format(project=project, run=run, other=other) for word in words]
    RunTester(project, in_process=True).with_fakes().run(*typed).assert_ok()
    assert not made.exists()


def test_a_resume_names_the_code_that_the_run_brings_along(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    mine = tester.write("mine.py", "def score(item):\n    return 1.0\n")
    config = tester.fake_run(run={"num_episodes": 8, "max_steps": 1}, log={"save_interval": 1})
    tester.run("train", config, "-rt", f"{mine}:score").assert_ok()
    done = tester.run("resume", str(run_of(tmp_path)), "--max-steps", "2", "--dry-run").assert_ok()
    assert f"reward '{mine}:score' is code that comes with the run, and it is executed: {mine}" in done.stdout, done


def _torch_file(folder: Path, content: Any) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")


def _plain_pickle(folder: Path, content: Any) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(content))


def _adapter(folder: Path, content: Any) -> None:
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "target_modules": ["q_proj"], "base_model_name_or_path": str(folder)}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    torch.save(content, folder / "adapter_model.bin")


@pytest.mark.parametrize("write", [_torch_file, _plain_pickle, _adapter])
def test_weights_that_are_a_pickle_are_not_executed(tmp_path: Path, write: Any) -> None:
    made = tmp_path / "made"
    write_model(tmp_path / "tiny")
    write(tmp_path / "tiny", {"model.norm.weight": Calls(os.system, (f"touch {made}",))})
    for backend in ("torch", "transformers"):
        tester = RunTester(tmp_path, in_process=True).with_fakes()
        names = {"training": {"name": "torch"}} if backend == "torch" else {"inference": {"name": "transformers"}}
        done = tester.run("train", tester.fake_run(model={"model": "tiny"}, **names))
        assert (done.exit_code, "Traceback" in done.stderr, made.exists()) == (2, False, False), done


_ESCAPES = [
    "{{ cycler.__init__.__globals__.os.system('touch MADE') }}",
    "{{ ''.__class__.__base__.__subclasses__() }}",
    "{{ messages.__class__.__init__.__globals__ }}{% for c in [].__class__.__mro__ %}{{ c.__subclasses__() }}{% endfor %}",
    "{{ raise_exception.__globals__['__builtins__']['open']('MADE', 'w') }}",
    "{% set _ = messages.append('x') %}",
]


@pytest.mark.parametrize("template", _ESCAPES)
def test_a_chat_template_reaches_no_code(tmp_path: Path, template: str) -> None:
    write_model(tmp_path / "tiny")
    (tmp_path / "tiny" / "chat_template.jinja").write_text(template.replace("MADE", str(tmp_path / "made")))
    with pytest.raises(DataError, match="the chat template refuses messages"):
        load_tokenizer(str(tmp_path / "tiny")).render([Message(role="user", content="a")])
    assert not (tmp_path / "made").exists()
