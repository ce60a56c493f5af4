"""Every file of a checkpoint, cut short, emptied, or with one bit flipped: named, never trained from; the checkpoint before it is used."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlcore.contracts.errors import ConfigError
from rlcore.runlog.checkpoint import verify
from rlcore.runlog.past_runs import find_checkpoint, past_runs
from rlcore.testing import RunTester
from tests.letters_model import write_model

Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "cut by two bytes": lambda data: data[:-2],
    "cut in half": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "longer": lambda data: data + b"\0",
    "zeros": lambda data: bytes(len(data)),
}


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@contextmanager
def damaged(path: Path, damage: Damage) -> Iterator[None]:
    data = path.read_bytes()
    path.write_bytes(damage(data))
    try:
        yield
    finally:
        path.write_bytes(data)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of real backends with checkpoints of steps 1 and 2, interrupted after them."""
    folder = tmp_path_factory.mktemp("damaged")
    write_model(folder / "tiny")
    tester = RunTester(folder, in_process=True).with_fakes()
    config = tester.fake_run(
        run={"num_episodes": 20, "max_steps": 2},
        log={"save_interval": 1},
        inference={"name": "transformers"},
        training={"name": "torch"},
        model={"model": "tiny"},
    )
    tester.run("train", config).assert_ok()
    (found,) = past_runs(folder / "runs" / "rlcore")
    (found.root / "summary.json").unlink()
    return found.root


def files(run: Path) -> list[Path]:
    newest = run / "checkpoints" / "step-2"
    found = sorted(path for path in newest.rglob("*") if path.is_file())
    kinds = {"model.safetensors", "config.json", "tokenizer.json", "trainer.pt", "consumer.json", "state.json", "checkpoint.json"}
    assert kinds <= {path.name for path in found}
    return found


def test_each_kind_of_damage_of_each_file_is_named_and_the_one_before_is_used(run: Path) -> None:
    some = random.Random(0)
    for path in files(run):
        bits = {f"bit {bit}": (lambda data, bit=bit: flipped(data, bit)) for bit in some.sample(range(8 * path.stat().st_size), 4)}
        for kind, damage in {**DAMAGES, **bits}.items():
            if damage(path.read_bytes()) == path.read_bytes():
                continue
            told: list[str] = []
            with damaged(path, damage):
                assert find_checkpoint(run, say=told.append).step == 1, f"{path} {kind}"
                with pytest.raises(ConfigError, match=r"damaged|cannot be understood|absent|checkpoint of step"):
                    find_checkpoint(run, 2)
            (sentence,) = told
            assert sentence.startswith("warning: the checkpoint of step 2 cannot be used: ")
            assert path.name == "checkpoint.json" or str(path) in sentence, f"{path} {kind}: {sentence}"
    assert find_checkpoint(run).step == 2


def test_any_bit_of_the_inventory_counts(run: Path) -> None:
    marker = run / "checkpoints" / "step-2" / "checkpoint.json"
    for bit in random.Random(1).sample(range(8 * marker.stat().st_size), 250):
        with damaged(marker, lambda data, bit=bit: flipped(data, bit)), pytest.raises(ConfigError):  # type: ignore[misc]
            verify(marker.parent)


def test_a_damaged_model_or_tokenizer_is_refused_where_it_is_named(run: Path) -> None:
    tester = RunTester(run.parents[2], in_process=True).with_fakes()
    model = run / "checkpoints" / "step-2" / "model"
    for path in (file for file in files(run) if file.parent == model):
        with damaged(path, lambda data: flipped(data, 4 * len(data))):
            for flags in (["-m", str(model), "--tokenizer-path", "tiny"], ["--tokenizer-path", str(model)]):
                done = tester.run("train", "run.toml", *flags)
                assert (done.exit_code, "Traceback" in done.stderr, done.written) == (2, False, ()), f"{path}: {done}"
                assert path.name in done.stderr or "tokenizer" in done.stderr, done.stderr


def test_a_resume_says_which_it_passes_over_and_goes_on(run: Path) -> None:
    tester = RunTester(run.parents[2], in_process=True).with_fakes()
    weights = run / "checkpoints" / "step-2" / "model" / "model.safetensors"
    with damaged(weights, lambda data: flipped(data, 8 * len(data) - 5)):
        refused = tester.run("resume", str(run), "--step", "2")
        refused.assert_refused(
            "step-2/model/model.safetensors has changed since it was saved (its SHA-256 differs from that in checkpoint.json)"
        )
        done = tester.run("resume", str(run), "--dry-run").assert_ok()
    assert "warning: the checkpoint of step 2 cannot be used" in done.stdout + done.stderr
    assert "resumes after update 1" in done.stdout + done.stderr
