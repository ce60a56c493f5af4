"""Models that cannot be trained as they are: real backends refuse each in one sentence before anything is written or trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from tests.letters_model import LETTERS, write_model

CODE = """
from pathlib import Path
from typing import Any
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

Path(MARK).write_text("ran")

class OwnConfig(Qwen2Config):
    model_type = "own"

class OwnModel(Qwen2ForCausalLM):
    config_class = OwnConfig

class OwnWords(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    """A project with a tiny real model in ``model`` and a run of real backends in ``run.toml``, in this process."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run()
    write_model(tmp_path / "tiny")
    sections = {"inference": {"name": "transformers"}, "training": {"name": "torch"}, "model": {"model": str(tmp_path / "tiny")}}
    tester.fake_run(**sections, run={"max_steps": 1})
    return tester


def edit(file: Path, **values: object) -> None:
    """Set these keys of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def bring_code(folder: Path, file: str) -> Path:
    """Let the model (``config.json``) or its tokenizer (``tokenizer_config.json``) need code of its own; returns the file that the code
    writes when it is run."""
    mark = folder.parent / "mark"
    (folder / "own.py").write_text(CODE.replace("MARK", repr(str(mark))))
    if file == "config.json":
        edit(folder / file, model_type="own", auto_map={"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"})
    else:
        (folder / "config.json").unlink(missing_ok=True)
        edit(folder / file, tokenizer_class="OwnWords", auto_map={"AutoTokenizer": [None, "own.OwnWords"]})
    return mark


@pytest.fixture
def nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question on the terminal fails the test."""
    monkeypatch.setattr("builtins.input", lambda *asked: pytest.fail(f"somebody is asked: {asked}"))


OWN_CODE = pytest.mark.parametrize(
    ("file", "flags"), [("config.json", ["--tokenizer-path", "words"]), ("tokenizer_config.json", ["--tokenizer-path", "tiny"])]
)


@OWN_CODE
def test_code_of_a_model_is_neither_run_nor_asked_about(file: str, flags: list[str], tester: RunTester, nobody_asked: None) -> None:
    mark = bring_code(tester.folder / "tiny", file)
    done = tester.run("train", "run.toml", *flags, *other_folder(tester, flags))
    done.assert_refused("tiny", "(auto_map", "--trust-remote-code")
    assert not mark.exists()


@OWN_CODE
def test_code_of_a_model_is_run_by_those_who_say_so(
    file: str, flags: list[str], tester: RunTester, nobody_asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tester.folder / "modules"))
    mark = bring_code(tester.folder / "tiny", file)
    tester.run("train", "run.toml", "--trust-remote-code", "-kl", "0.1", *flags, *other_folder(tester, flags)).assert_ok()
    assert mark.read_text() == "ran"


def other_folder(tester: RunTester, flags: list[str]) -> list[str]:
    """A second, plain model; the flags that make it the policy if the first one is only the tokenizer's."""
    write_model(tester.folder / "words")
    return ["-m", "words"] if flags[-1] == "tiny" else []


def test_code_that_transformers_can_do_without_is_left_out_and_named(tester: RunTester, nobody_asked: None) -> None:
    mark = tester.folder / "mark"
    (tester.folder / "tiny" / "own.py").write_text(CODE.replace("MARK", repr(str(mark))))
    edit(tester.folder / "tiny" / "config.json", auto_map={"AutoModelForCausalLM": "own.OwnModel"})
    done = tester.run("train", "run.toml").assert_ok()
    assert not mark.exists()
    assert "config.json refers to its own code (auto_map), which is not run without --trust-remote-code" in done.stdout


def test_a_vocabulary_smaller_than_the_tokenizers_is_one_sentence(tester: RunTester) -> None:
    write_model(tester.folder / "tiny", rows=len(LETTERS) + 2)
    tester.run("train", "run.toml").assert_refused(
        "train.jsonl:6", "token 8 ('f')", "8 rows", "use the tokenizer that belongs to the model"
    )


def test_a_vocabulary_without_the_token_that_ends_a_response_is_one_sentence(tester: RunTester) -> None:
    write_model(tester.folder / "tiny")
    tokenizer = tester.folder / "tiny" / "tokenizer_config.json"
    edit(tokenizer, eos_token="<end>")
    edit(tester.folder / "tiny" / "config.json", eos_token_id=None)
    edit(tester.folder / "tiny" / "generation_config.json", eos_token_id=None)
    tester.run("train", "run.toml").assert_refused("<end>", "token 10", "10 rows")


def test_weights_that_are_not_numbers_are_blamed_on_their_tensor(tester: RunTester) -> None:
    spoil_weights(tester.folder / "tiny", "model.layers.1.mlp.up_proj.weight", float("nan"))
    done = tester.run("train", "run.toml")
    done.assert_refused("tiny", "'model.layers.1.mlp.up_proj.weight'", "1 non-finite value", "checkpoint again")


def spoil_weights(folder: Path, name: str, value: float) -> None:
    """Write one value into a tensor of a checkpoint."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors[name][0, 0] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda whole: whole[:-100], ("is truncated", "100 bytes")),
        (lambda whole: whole[:50], ("is truncated",)),
        (lambda whole: b"", ("is empty",)),
        (lambda whole: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", ("Git LFS", "git lfs pull")),
        (lambda whole: b"<html>" + bytes(5000), ("is not a safetensors file",)),
    ],
)
def test_weights_that_cannot_be_read_are_blamed_on_their_file(content: Any, words: tuple[str, ...], tester: RunTester) -> None:
    file = tester.folder / "tiny" / "model.safetensors"
    file.write_bytes(content(file.read_bytes()))
    for flags in ([], ["--dry-run"]):
        tester.run("train", "run.toml", *flags).assert_refused("tiny/model.safetensors", *words)


def test_weights_of_another_shape_than_the_configuration_says_are_named(tester: RunTester) -> None:
    edit(tester.folder / "tiny" / "config.json", intermediate_size=64)
    tester.run("train", "run.toml").assert_refused("config.json", "tensor 'model.layers.0.mlp.", "another shape")


def test_a_shard_that_is_absent_is_named(tester: RunTester) -> None:
    folder = tester.folder / "tiny"
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors", "lm_head.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    tester.run("train", "run.toml", "--dry-run").assert_refused("model-00002-of-00002.safetensors", "does not exist")


def test_weights_of_a_checkpoint_can_be_read_by_whoever_reads_its_other_files(tester: RunTester) -> None:
    done = tester.run("train", "run.toml", "--json").assert_ok()
    model = tester.folder / done.json["checkpoint"] / "model"
    assert (model / "model.safetensors").stat().st_mode == (model / "config.json").stat().st_mode
