"""recipes/: every file resolves as its header says, and its data can be made by the text beside it. None of them is run here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.specs import RewardSpec
from rlcore.data.prompts import load_eval
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import RunOutcome, RunTester
from rlcore.testing.run_tester import QUIET

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "recipes").glob("*.toml"))
README = (ROOT / "recipes" / "README.md").read_text(encoding="utf-8")
SCRIPTS = {
    match["name"]: match["text"] for match in re.finditer(r"<!-- test: (?P<name>\S+) -->\n```python\n(?P<text>.*?)```", README, re.DOTALL)
}
INTENDED: dict[str, dict[str, Any]] = {
    "gsm8k-qwen-0.5b.toml": {
        "run.runtime": "local",
        "run.num_episodes": 3,
        "model.model": "Qwen/Qwen2.5-0.5B-Instruct",
        "sampling.num_generations": 8,
        "sampling.temperature": 1.0,
        "sampling.max_new_tokens": 512,
        "data.max_prompt_tokens": 512,
        "inference.name": "transformers",
        "inference.inference_microbatch_size": 32,
        "inference.dtype": "bfloat16",
        "training.name": "torch",
        "training.train_batch_size": 64,
        "training.tokens_per_forward": 2048,
        "training.learning_rate": 1e-6,
        "training.min_lr_ratio": 1.0,
        "training.dtype": "bfloat16",
        "algorithm.estimator": "group_norm",
        "algorithm.loss": "clipped",
        "algorithm.kl_coeff": 0.001,
        "algorithm.kl_kind": "k3",
        "algorithm.kl_in": "loss",
        "algorithm.updates_per_batch": 1,
        "schedule.max_staleness": 0,
        "eval.eval_interval": 117,
    },
    "dapo-math-7b-8gpu.toml": {
        "run.runtime": "ray",
        "run.max_steps": 200,
        "model.model": "Qwen/Qwen2.5-Math-7B",
        "sampling.num_generations": 16,
        "sampling.temperature": 1.0,
        "sampling.max_new_tokens": 3072,
        "data.max_prompt_tokens": 1024,
        "inference.name": "vllm",
        "inference.num_inferencer": 4,
        "inference.inference_batch_size": 128,
        "training.name": "colossalai",
        "training.num_trainers": 4,
        "training.zero_stage": 2,
        "training.train_batch_size": 512,
        "training.tokens_per_forward": 16384,
        "training.learning_rate": 1e-6,
        "training.min_lr_ratio": 1.0,
        "training.warmup_steps": 160,
        "training.weight_decay": 0.1,
        "training.max_grad_norm": 1.0,
        "algorithm.loss": "clipped",
        "algorithm.loss_variation": "token_level",
        "algorithm.kl_coeff": 0.0,
        "algorithm.options.clip_eps_low": 0.2,
        "algorithm.options.clip_eps_high": 0.28,
        "algorithm.filter_range": [0.01, 0.99],
        "algorithm.dynamic_batching": True,
        "algorithm.soft_over_length_punishment": True,
        "algorithm.cache_length": 768,
        "algorithm.updates_per_batch": 16,
        "algorithm.old_logprobs": "trainer",
        "algorithm.mismatch_correction": "truncated",
        "algorithm.mismatch_range": [0.0, 2.0],
        "schedule.max_staleness": 1,
        "eval.eval_temperature": 1.0,
    },
}
"""What each file must resolve to, by the paths of ``rlcore show config``; also where it relies on a default."""

NOT_YET = {
    "gsm8k-qwen-0.5b.toml": [],
    "dapo-math-7b-8gpu.toml": ["inference backend vllm needs the module vllm", "training backend colossalai needs the module"],
}

PUBLIC = r'''
def load_dataset(name, config=None, split=None):
    """The columns of the public data sets, a few rows of each form."""
    if name == "openai/gsm8k":
        assert config == "main" and split in ("train", "test")
        ask = {"question": "How many apples are 500 and 600?", "answer": "500 + 600 = <<500+600=1100>>1,100\n#### 1,100"}
        return [ask, {"question": "And 2 less 5?", "answer": "2 - 5 = -3\n#### -3"}]
    if name == "open-r1/DAPO-Math-17k-Processed":
        assert (config, split) == ("en", "train")
        before = "Solve it. The last line should be Answer: $Answer where $Answer is the answer to the problem.\n\n"
        after = '\n\nRemember to put your answer on its own line after "Answer:".'
        wrapped = before + "Find $x$.\n\nIt is even." + after
        return [{"prompt": text, "solution": "34"} for text in ("Find $x$.\n\nIt is even.", wrapped, "long " * 500)]
    assert (name, config, split) == ("HuggingFaceH4/aime_2024", None, "train")
    return [{"id": 60, "problem": "Find the remainder.", "solution": "…", "answer": "025"}]
'''
"""A stand-in for the library `datasets`, which would ask the hub."""


def dry_run(file: Path, folder: Path) -> RunOutcome:
    return RunTester(folder, in_process=True).run("train", str(file), "--dry-run", "--json").assert_ok()


def setting(config: Any, path: str) -> Any:
    for key in path.split("."):
        config = config[key]
    return config


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_header_says_what_it_is_and_what_to_type(file: Path) -> None:
    header = file.read_text(encoding="utf-8").partition("\n[")[0]
    assert all(line.startswith("#") or not line for line in header.splitlines())
    assert "not run here" in header.lower()
    assert f"  rlcore train recipes/{file.name} --dry-run" in header
    assert f"  rlcore train recipes/{file.name}  " in header
    assert re.search(r"python (\S+\.py)", header)[1] in SCRIPTS  # type: ignore[index]
    assert "# Memory, GB" in header
    assert "# Hours:" in header
    assert f"`{file.name}`" in README


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_resolves_to_the_intended_numbers(file: Path, tmp_path: Path) -> None:
    """Exit code 0 with nothing but the file: no data, no network. A setting that no longer applies would be a note."""
    plan = dry_run(file, tmp_path).json
    for path, value in INTENDED[file.name].items():
        assert setting(plan["config"], path) == value, path
    assert not [note for note in plan["notes"] if "do not apply" in note]
    data = [*(source["path"] for source in plan["config"]["data"]["dataset"]), *plan["config"]["eval"]["eval_dataset"].values()]
    expected = [*NOT_YET[file.name], *(f"data set {name} is not found here" for name in data)]
    said = [item["what"] for item in plan["missing"]]
    assert len(said) == len(expected)
    assert all(what.startswith(start) for what, start in zip(said, expected, strict=True)), said


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_line_repeats_what_would_hold_without_it(file: Path, tmp_path: Path) -> None:
    """A line is there because it changes something: without it the resolved value is another one. Names of plugins may stand, and
    max_staleness, which depends on the machine."""
    text = file.read_text(encoding="utf-8")
    plan = dry_run(file, tmp_path / "whole").json["config"]
    section = ""
    for number, line in enumerate(text.splitlines()):
        section = line.strip("[]") if line.startswith("[") else section
        key = line.partition(" =")[0]
        if line.startswith("#") or " = " not in line or key in ("name", "eval_dataset", "dataset", "model", "max_staleness"):
            continue
        without = tmp_path / f"{number}.toml"
        without.write_text("\n".join(text.splitlines()[:number] + text.splitlines()[number + 1 :]), encoding="utf-8")
        other = RunTester(tmp_path / "one", in_process=True).run("train", str(without), "--dry-run", "--json").assert_ok().json["config"]
        assert setting(other, f"{section}.{key}") != setting(plan, f"{section}.{key}"), line


def test_there_are_recipes_and_all_of_them_are_intended() -> None:
    assert [file.name for file in FILES] == sorted(INTENDED) == sorted(NOT_YET)


def test_the_text_makes_data_that_the_recipes_take(tmp_path: Path) -> None:
    """The scripts of the README on rows with the public columns: what they write is read back, and ``boxed`` can judge it."""
    (tmp_path / "datasets.py").write_text(PUBLIC, encoding="utf-8")
    for name, script in SCRIPTS.items():
        (tmp_path / name).write_text(script, encoding="utf-8")
        environment = os.environ | QUIET | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, name], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    registry = Registry.discover()
    spec, boxed = registry.spec("reward", "boxed"), registry.load("reward", "boxed")()
    assert isinstance(spec, RewardSpec)
    data = {path.stem: load_eval(path, [spec], registry).prompts for path in tmp_path.glob("*.jsonl")}
    assert {boxed.check(prompt.columns) for prompts in data.values() for prompt in prompts} == {None}
    rows = {name: [(prompt.messages[-1].content, prompt.columns["gt_answer"]) for prompt in prompts] for name, prompts in data.items()}
    assert rows.pop("gsm8k-train") == rows["gsm8k-test"] == [("How many apples are 500 and 600?", "1100"), ("And 2 less 5?", "-3")]
    assert rows["dapo-math"] == [("Find $x$.\n\nIt is even.", "34")] * 2
    assert rows["aime24"] == [("Find the remainder.", "025")] * 32
    needed = {name for file in FILES for name in re.findall(r'"([\w-]+)\.jsonl"', file.read_text())}
    assert needed == {*rows, "gsm8k-train"}
