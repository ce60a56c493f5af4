"""The shapes of the comparison, and the folders that hold them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.peers.work import Work
from benchmarks.processes import LARGE

__all__ = ["SHAPES", "make_folder"]

_LONG = {
    "prompts": 8,
    "group": 8,
    "prompt_tokens": 200,
    "reward": "parity",
    "forward_rollouts": 64,
    "steps": 1,
    "warmup": 1,
    "learning_rate": 1e-6,
}
SHAPES = {
    work.name: work
    for work in (
        Work(
            name="quickstart",
            prompts=32,
            group=8,
            prompt_tokens=64,
            new_tokens=16,
            reward="answer",
            forward_rollouts=256,
            steps=20,
            warmup=5,
        ),
        Work(name="12.6M", new_tokens=64, **_LONG),  # type: ignore[arg-type]  # the keywords are those of Work
        Work(name="heavy-tailed", new_tokens=256, sigma=1.0, **(_LONG | {"prompt_tokens": 64})),  # type: ignore[arg-type]
    )
}
_ROWS = 256
_NEVER = 2.0
"""What the embedding of every token holds in its first entry, and that of the end with the other sign: a model that never ends."""


def make_folder(folder: Path, work: Work, base: Path, rounds_steps: int | None = None) -> Path:
    """``model``, ``train.jsonl`` and ``work.json`` of a shape; ``base``: the quickstart's folder. ``rounds_steps``: instead of the steps
    of the shape."""
    folder.mkdir(parents=True)
    (work if rounds_steps is None else replace(work, steps=rounds_steps)).write(folder)
    if work.reward == "answer":
        shutil.copytree(base / "base", folder / "model")
        shutil.copy(base / "train.jsonl", folder / "train.jsonl")
        return folder
    endless(base / "base", folder / "model")
    rows = [{"messages": {"role": "user", "content": text}, "gt_answer": "0"} for text in texts(folder / "model", work)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def endless(base: Path, folder: Path) -> None:
    """A model of 12.6 million weights, not trained, with the tokenizer of ``base``, that practically never draws the end."""
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    config = AutoConfig.from_pretrained(base)
    for key, value in {**LARGE, "max_position_embeddings": 1024, "initializer_range": 0.02}.items():
        setattr(config, key, value)
    config.layer_types = None
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(type(config)(**config.to_diff_dict()))
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        weight[:, 0] = _NEVER
        weight[config.eos_token_id, 0] = -_NEVER
    model.save_pretrained(folder)


def texts(model: Path, work: Work) -> Sequence[str]:
    """Digits that render to exactly ``prompt_tokens`` tokens."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    generator = np.random.default_rng(0)
    frame = len(tokenizer.apply_chat_template([{"role": "user", "content": "0"}], add_generation_prompt=True, return_dict=False)) - 1
    return ["".join(map(str, generator.integers(0, 10, work.prompt_tokens - frame))) for _ in range(_ROWS)]
