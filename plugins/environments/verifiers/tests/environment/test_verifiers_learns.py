"""A tiny real model, which has half learned a task of the quickstart, learns tasksets of verifiers: a game of guesses by tokens, and one
with a tool by tokens and by chat."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from verifiers_player import NEEDS_VERIFIERS, TASKS

from rlcore.testing import RunTester
from tests.quickstart_folder import quickstart_of

pytestmark = [pytest.mark.nightly, NEEDS_VERIFIERS[1], pytest.mark.timeout(3600)]
END = "-----END CERTIFICATE-----"
PATIENCE = 3000.0
"""Seconds: the machine may be busy."""


def learned(
    folder: Path,
    made: Path,
    rows: str,
    heldout: str,
    steps: int,
    options: dict[str, Any],
    tokens: int,
    *,
    staleness: int,
    prompts: int,
    rate: float,
    clip: float = 0.2,
) -> list[float]:
    """Train; return the accuracy on held-out tasks before and after."""
    tester = RunTester(folder)
    settings: dict[str, Any] = {
        "run": {"project": "verifiers", "run_dir": str(folder / "runs"), "num_episodes": 4, "max_steps": steps},
        "model": {"model": str(made / "base")},
        "data": {"dataset": f"env:verifiers:{TASKS}/{rows}", "system_prompt": "", "max_prompt_tokens": 64},
        "sampling": {
            "environment": "verifiers",
            "environment_options": options,
            "num_generations": 8,
            "max_new_tokens": tokens,
            "options": {"workers": 1},
        },
        "schedule": {"max_staleness": staleness},
        "inference": {"name": "transformers"},
        "training": {
            "name": "torch",
            "train_batch_size": prompts,
            "learning_rate": rate,
            "warmup_steps": 5,
            "betas": [0.9, 0.95],
            "min_lr_ratio": 0.5,
        },
        "algorithm": {"name": "grpo", "options": {"clip_eps_high": clip}},
        "rewards": [{"name": "environment"}],
        "eval": {"eval_dataset": {"heldout": f"env:verifiers:{TASKS}/{heldout}"}, "eval_interval": steps, "eval_temperature": 0.0},
    }
    certificates = Path(import_module("certifi").where()).read_text(encoding="utf-8")
    (folder / "one.pem").write_text(certificates[: certificates.index(END) + len(END)] + "\n", encoding="utf-8")
    env = {"SSL_CERT_FILE": str(folder / "one.pem")}  # or each episode reads all of them
    done = tester.run("train", str(tester.write_toml("run.toml", settings)), "--json", timeout=PATIENCE, env=env).assert_ok().json
    lines = [json.loads(line) for line in (tester.folder / done["run"] / "metrics.jsonl").read_text().splitlines()]
    assert not any(line.get("conversation/episode_environment") for line in lines), "the traces have what was sampled"
    return [line["eval/heldout"] for line in lines if "eval/heldout" in line]


@pytest.mark.parametrize(("staleness", "steps", "clip"), [(0, 30, 0.2), (2, 40, 4.0)])
def test_the_game_of_guesses_is_learned_by_tokens(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, staleness: int, steps: int, clip: float
) -> None:
    """The first right guesses are rare; with stale data, more updates are needed. The README (Traps) has figures of several seeds."""
    made = quickstart_of("sort", tmp_path_factory)
    options = {"client": "tokens", "tokenizer": str(made / "base"), "renderer": {"name": "default"}}
    rows, heldout = "guess_digit.py?count=1000", "guess_digit.py?split=test&count=50"
    before, *_, after = learned(tmp_path, made, rows, heldout, steps, options, 48, staleness=staleness, prompts=8, rate=8e-4, clip=clip)
    print(f"accuracy before and after {steps} updates with staleness {staleness}: {before:g}, {after:g}")
    assert before <= 0.1
    assert after >= 0.3


@pytest.mark.parametrize(("client", "staleness"), [("tokens", 0), ("chat", 2)])
def test_the_use_of_a_tool_is_learned(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, client: str, staleness: int) -> None:
    made = quickstart_of("tools", tmp_path_factory)
    rows, heldout = (f"calculator_tasks.py?file={made}/{name}.jsonl" for name in ("train", "heldout"))
    renderer = {"name": "custom", "import_path": f"{TASKS}/quickstart_renderer.py:QuickstartRenderer"}
    tokens = {"client": "tokens", "tokenizer": str(made / "base"), "renderer": renderer}
    before, *_, after = learned(
        tmp_path, made, rows, heldout, 15, tokens if client == "tokens" else {}, 32, staleness=staleness, prompts=16, rate=4e-4
    )
    print(f"accuracy before and after 15 updates with staleness {staleness}: {before:g}, {after:g}")
    assert before <= 0.55
    assert after >= 0.9
