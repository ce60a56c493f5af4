"""A run with the model hook of docs/authors/algorithms.md, from its text alone: what it freezes stays, also after a resume; and its kit."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlcore.api import ModelHook
from rlcore.testing import ModelHookSuite, RunTester
from tests.quickstart_folder import quickstart_in
from tests.stranger_site import link_stranger, stranger_site

PAGE = (Path(__file__).parents[2] / "docs" / "authors" / "algorithms.md").read_text(encoding="utf-8")
SOURCE = re.search(r"```python\n(?P<code>(?:(?!```).)*?class FrozenEmbeddings.*?)```", PAGE, re.DOTALL)
assert SOURCE is not None
CODE = SOURCE["code"]
EMBEDDING = "model.embed_tokens.weight"
HOOK = "./frozen.py:FrozenEmbeddings"


class TestFrozenEmbeddings(ModelHookSuite):
    def make(self) -> ModelHook:
        module = ModuleType("frozen")
        exec(compile(CODE, "frozen.py", "exec"), vars(module))
        made: ModelHook = module.FrozenEmbeddings()
        return made


@pytest.fixture
def tester(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> RunTester:
    made = RunTester(tmp_path, in_process=True)
    made.write("frozen.py", CODE)
    quickstart_in(tmp_path / "qs", tmp_path_factory, train=64, heldout=4)
    return made


def train(tester: RunTester, *words: str, steps: int) -> Path:
    few = f"--max-steps {steps} -tbs 4 -g 4 -ei 0 --max-staleness 0 --save-interval 1 --kl-coeff 0.01".split()
    return tester.folder / tester.run("train", "qs/run.toml", *few, *words, "--json").assert_ok().json["run"]


def weights(folder: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def losses(run: Path) -> list[Any]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["loss"], row["grad_norm"], row["kl_reference"]) for row in rows if "loss" in row]


@pytest.mark.full
def test_what_it_freezes_stays_frozen_and_a_resumed_run_is_the_same_to_the_bit(tester: RunTester) -> None:
    straight = train(tester, "--model-hook", HOOK, steps=3)
    base, after = weights(tester.folder / "qs/base"), weights(straight / "checkpoints/step-3/model")
    assert {name for name in base if np.array_equal(base[name], after[name])} == {EMBEDDING}
    written = tomllib.loads((straight / "run.toml").read_text())["training"]
    assert written["model_hook"].endswith("frozen.py:FrozenEmbeddings")
    attested = {row["kind"]: row for row in json.loads((straight / "manifest.json").read_text())["plugins"]}
    assert attested["model_hook"]["name"].endswith("frozen.py:FrozenEmbeddings")
    broken = train(tester, "--model-hook", HOOK, steps=2)
    changed = tester.run("resume", str(broken), "--max-steps", "3", "--model-hook", "none")
    changed.assert_refused("a resumed run keeps its training.model_hook")
    tester.run("resume", str(broken), "--max-steps", "3").assert_ok()
    again = weights(broken / "checkpoints/step-3/model")
    assert all(np.array_equal(again[name], weight) for name, weight in after.items())
    assert losses(broken)[2:] == losses(straight)[2:]


@pytest.mark.full
def test_a_stranger_s_hook_has_options(tester: RunTester, tmp_path_factory: pytest.TempPathFactory) -> None:
    link_stranger(stranger_site(tmp_path_factory), tester.plugins)
    run = train(tester, "--model-hook", "acme_frozen_layers", "--layers", "1", steps=1)
    base, after = weights(tester.folder / "qs/base"), weights(run / "checkpoints/step-1/model")
    still = {name for name in base if np.array_equal(base[name], after[name])}
    assert still == {EMBEDDING, *(name for name in base if name.startswith("model.layers.0."))}
    attested = {row["kind"]: row for row in json.loads((run / "manifest.json").read_text())["plugins"]}
    assert attested["model_hook"]["distribution"] == "acme-rlcore"
    written = tomllib.loads((run / "run.toml").read_text())["training"]
    assert (written["model_hook"], written["model_hook_options"]) == ("acme_frozen_layers", {"layers": 1})


def test_names_and_backends_are_checked_before_the_run(tester: RunTester) -> None:
    def refused(hook: str, *words: str, says: str) -> None:
        tester.run("train", "qs/run.toml", "--model-hook", hook, *words, "--dry-run").assert_refused("--model-hook", says)

    refused("frozzen", says="there is no model hook 'frozzen'")
    refused("./frozen.py:Frozen", says="Frozen")
    tester.with_fakes()
    config = tester.fake_run()
    said = "training backend fake does not take model hooks (capabilities.model_hooks is False); type --model-hook none"
    tester.run("train", config, "--model-hook", HOOK, "--dry-run").assert_refused(said)
    tester.run("train", config, "--model-hook", "none", "--dry-run").assert_ok()
    shown = json.loads(tester.run("show", "model_hook", "fake", "--json").assert_ok().stdout)
    assert tomllib.loads(shown["toml"])["training"] == {"model_hook": "fake"}


def test_a_hook_that_engines_cannot_follow_is_refused_at_the_start(tester: RunTester) -> None:
    tester.write("wider.py", CODE.replace("        return model", "        model.extra = type(model.lm_head)(3, 3)\n        return model"))
    done = tester.run("train", "qs/run.toml", "--max-steps", "1", "-ei", "0", "--model-hook", "./wider.py:FrozenEmbeddings")
    assert done.exit_code == 2
    assert "model hook FrozenEmbeddings makes a model that engines and from_pretrained do not know: its tensor 'extra.bias'" in done.stderr
