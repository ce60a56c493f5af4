"""Runs on games of the real textarena, with a tiny model that answers with a digit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from tests.made_once import made_once

if not os.environ.get("RLCORE_TEST_TEXTARENA"):
    pytest.skip("needs the environment of textarena, named in RLCORE_TEST_TEXTARENA: rlcore env build textarena", allow_module_level=True)

PATIENCE = 900.0
"""Seconds: the machine may be busy."""
CONTEXT = 8192
"""Tokens. A token is a character; no game of these tests is longer."""
SURE = 3.0


def write_guesser(folder: Path) -> None:
    """Write a Qwen2 that answers with any digit from 0 to 9 and ends there, after any prompt, and a tokenizer of characters.

    Its layers add nothing yet, so that the last token alone decides: after ``<assistant>`` each digit is as likely, after a digit the end.
    """
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    roles = ["<system>", "<user>", "<assistant>"]
    words = ["<pad>", "<eos>", *roles, "\n", *map(chr, range(32, 127))]
    ids = {word: number for number, word in enumerate(words)}
    fast = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    fast.decoder = decoders.Fuse()
    special = {"eos_token": "<eos>", "pad_token": "<pad>", "additional_special_tokens": roles}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, **special, model_max_length=CONTEXT)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<eos>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen2ForCausalLM(
        Qwen2Config(**shape, vocab_size=len(words), max_position_embeddings=CONTEXT, eos_token_id=1, bos_token_id=None, pad_token_id=0)
    )
    asks, digit, other = 0, 1, 2  # dimensions of the hidden state
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        digits = [ids[str(one)] for one in range(10)]
        model.model.embed_tokens.weight.zero_()
        model.model.embed_tokens.weight[:, other] = 1.0
        for token, kind in ((ids["<assistant>"], asks), *((token, digit) for token in digits)):
            model.model.embed_tokens.weight[token, other] = 0.0
            model.model.embed_tokens.weight[token, kind] = 1.0
        model.lm_head.weight.zero_()
        model.lm_head.weight[digits, asks] = SURE
        model.lm_head.weight[ids["<eos>"], digit] = SURE
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def guesser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once("textarena-guesser", write_guesser, tmp_path_factory)


def trained(folder: Path, model: Path, rows: str, steps: int, **sampling: Any) -> list[dict[str, float]]:
    """The metrics of a run with 32 episodes a step."""
    tester = RunTester(folder)
    options = {"workers": 2, **sampling.pop("options", {})}
    sections = {
        "run": {"project": "games", "run_dir": str(folder / "runs"), "num_episodes": 1, "max_steps": steps},
        "model": {"model": str(model)},
        "data": {"dataset": rows, "system_prompt": "", "max_prompt_tokens": 700},
        "sampling": {
            "environment": "textarena",
            "environment_options": {"max_tokens": 3},
            "num_generations": 8,
            "max_new_tokens": 90,
            "max_context_tokens": CONTEXT,
            "options": options,
            **sampling,
        },
        "inference": {"name": "transformers"},
        "training": {"name": "torch", "train_batch_size": 4, "learning_rate": 1e-3},
        "algorithm": {"name": "grpo", "entropy_coeff": 0.01},
        "rewards": [{"name": "environment"}],
    }
    done = tester.run("train", str(tester.write_toml("run.toml", sections)), "--json", timeout=PATIENCE).assert_ok()
    lines = (folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


SHOWN = ("reward/mean", "turns/mean", "response_tokens", "conversation/game_turns", "conversation/invalid_end", "conversation/episode_ok")


def told(metrics: list[dict[str, float]]) -> None:
    for row in metrics:
        print({name: round(value, 3) for name, value in row.items() if name in SHOWN or name.startswith("conversation/")})


@pytest.mark.timeout(PATIENCE)
def test_32_episodes_of_guessing(tmp_path: Path, guesser: Path) -> None:
    metrics = trained(tmp_path, guesser, "env:textarena:GuessTheNumber-v0?count=4&seed=1&max_number=9", 1)
    told(metrics)
    (row,) = metrics
    assert row["conversation/episode_ok"] == 1.0
    assert row["conversation/invalid_end"] < 1.0
    assert 0.0 < row["reward/mean"] <= 1.0


@pytest.mark.timeout(PATIENCE)
def test_32_episodes_of_self_play(tmp_path: Path, guesser: Path) -> None:
    players: dict[str, Any] = {"players": {"left": {}, "right": {}}}
    metrics = trained(tmp_path, guesser, "env:textarena:TicTacToe-v0?count=4&seed=1", 1, options=players)
    told(metrics)
    (row,) = metrics
    assert row["conversation/episode_ok"] == 1.0
    assert row["conversation/game_turns"] > 3.0, "more than two invalid moves in a row"
    assert row["conversation/reward_left"] == -row["conversation/reward_right"]
    assert row["reward/mean"] == pytest.approx(0.0)


@pytest.mark.timeout(PATIENCE)
def test_32_episodes_against_a_frozen_copy(tmp_path: Path, guesser: Path) -> None:
    players: dict[str, Any] = {"players": {"left": {}, "right": {"model": str(guesser)}}}
    metrics = trained(tmp_path, guesser, "env:textarena:TicTacToe-v0?count=4&seed=1", 1, options=players)
    told(metrics)
    (row,) = metrics
    assert row["conversation/episode_ok"] == 1.0
    assert row["conversation/calls"] + row["conversation/calls_right"] == row["conversation/game_turns"], "each makes its own moves"
    assert row["conversation/roots"] == 1.0, "the chat of the frozen model does not train"
    assert "conversation/reward_right" not in row
    assert -1.0 < row["reward/mean"] == row["conversation/reward_left"] < 1.0
