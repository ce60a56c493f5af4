"""How long the products of one step would take if nothing else took time: what is left of a step's seconds is overhead and memory.

Counted for the work as rlcore does it: a prompt once for its group, in generation and in training. A token costs 2 operations a weight
forward and 4 backward, and 4 x layers x width x (tokens before it) for attention, twice that again backward.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.peers.work import Work

__all__ = ["arithmetic"]


def arithmetic(folder: Path, work: Work, response: float, seconds: float) -> dict[str, float]:
    """``seconds``: of a step with responses of ``response`` tokens on average. ``share``: of them, what the products take at the speed of
    large ones on this machine, measured now, in ``gflops``."""
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "model"))
    weights = sum(parameter.numel() for parameter in model.parameters())
    prompt, config = mean_prompt(folder), model.config
    tokens = work.prompts * (prompt + work.group * response)
    before = work.prompts * (prompt**2 / 2 + work.group * response * (prompt + response / 2))
    passes = 2 + 6  # generation reads every token once, training forward and backward
    operations = passes * (weights * tokens + 2 * config.num_hidden_layers * config.hidden_size * before)
    speed = measured_speed(config.hidden_size)
    return {"share": round(operations / speed / seconds, 3), "gflops": round(speed / 1e9, 1)}


def mean_prompt(folder: Path) -> float:
    """Tokens of a prompt, the mean of the first hundred."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    rows: list[dict[str, Any]] = [json.loads(line) for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()[:100]]
    ids = [tokenizer.apply_chat_template([row["messages"]], add_generation_prompt=True, return_dict=False) for row in rows]
    return sum(map(len, ids)) / len(ids)


def measured_speed(width: int) -> float:
    """Operations a second of products as wide as the model's, of 4096 rows: the best of ten."""
    one, other = torch.randn(4096, width), torch.randn(width, 3 * width)
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        torch.mm(one, other)
        best = min(best, time.perf_counter() - started)
    return 2.0 * 4096 * width * 3 * width / best
