"""Whole runs with real models, whose episodes agents of other frameworks play in a sandbox, which reaches the gateway and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore_plugin_quickstart.assets import prepare
from rlcore_plugin_quickstart.recipe import TASKS, run_toml
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2Tokenizer

from rlcore.testing import RunTester
from tests.agent_environments import agent_environment, agent_program
from tests.levels import need
from tests.made_once import made_once

pytestmark = pytest.mark.nightly
UPDATES, PROMPTS, COPIES = 2, 8, 4
IN_A_SANDBOX = '\n[sampling.options.sandbox]\nlevel = "namespaces"\n'


def trained(folder: Path, framework: str, *words: str, flags: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Train by ``folder/run.toml``; return the metrics of the updates."""
    need("namespaces")
    environment = ("--environment", "program", "--python", str(agent_environment(framework)))
    command = ("--command", " ".join(("python -u", str(agent_program(framework)), *words)))
    done = RunTester(folder).run("train", "run.toml", *environment, *command, *flags, "--json").assert_ok()
    assert done.json["ledger"]["failed"] == 0
    rows = [json.loads(line) for line in (folder / done.json["run"] / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [row for row in rows if "turns/mean" in row]


@pytest.mark.parametrize(
    ("framework", "words"),
    [("openai_agents", ("responses",)), ("pydantic_ai", ("messages", "stream")), ("inspect_ai", ("chat",))],
    ids=["openai-agents", "pydantic-ai", "inspect-ai"],
)
def test_a_model_that_calls_tools_is_trained_in_an_agent_of_another_framework(
    framework: str, words: tuple[str, ...], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    task = TASKS["tools"]
    base = made_once("quickstart-tools", lambda made: prepare(made, 0, lambda line: None, task), tmp_path_factory)
    folder = tmp_path / "quickstart"
    shutil.copytree(base, folder)
    text = run_toml(folder, 0, task=task).partition("[eval]")[0].replace("workers = 1 ", "workers = 3 ")
    text = text.replace("episodes_per_process = 64", "episodes_per_process = 1")
    (folder / "run.toml").write_text(text + IN_A_SANDBOX, encoding="utf-8")
    flags = ("--max-steps", str(UPDATES), "-tbs", str(PROMPTS), "-g", str(COPIES))
    rows = trained(folder, framework, *words, flags=flags)
    assert len(rows) == UPDATES
    for row in rows:
        assert row["conversation/episode_ok"] == row["conversation/roots"] == 1.0
        assert row["conversation/untrained_tokens"] == row["conversation/forks"] == 0.0
        assert row["conversation/calls"] == row["turns/mean"] > 1.2, "some episodes called the calculator"
        assert 0.1 < row["reward/mean"] < 0.9


def tiny_model(folder: Path) -> None:
    """Random weights, with a token for each byte, and room for the long prompts of smolagents."""
    vocabulary = {chr(number): number for number in range(256)}
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=[], unk_token="\x00", eos_token="\x01", pad_token="\x00")
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(vocab_size=256, max_position_embeddings=40_000, eos_token_id=1, pad_token_id=0, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def test_an_agent_that_rewrites_its_history_trains_a_segment_for_each_call(tmp_path: Path) -> None:
    tiny_model(tmp_path / "base")
    question = {"role": "user", "content": "what is 12*34"}
    rows = [{"messages": question, "gt_answer": "408"}, {"messages": question, "gt_answer": "409"}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    text = f"""
[model]
model = "base"
[data]
dataset = "train.jsonl"
[sampling]
num_generations = 2
max_new_tokens = 60
max_context_tokens = 30000
[sampling.options]
workers = 2
max_call_tokens = 12
[inference]
name = "transformers"
[training]
name = "torch"
train_batch_size = 1
[algorithm]
name = "grpo"
[[rewards]]
name = "environment"
{IN_A_SANDBOX}"""
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    (row,) = trained(tmp_path, "smolagents", "code", flags=("--max-steps", "1"))
    assert row["conversation/episode_ok"] == 1.0
    assert row["conversation/roots"] == row["conversation/calls"] > 1
    assert row["turns/mean"] == row["conversation/calls"] - 1, "all but the question for a last answer, after four steps"
