"""`make bench-data`: seconds from the command to the end of a run of one step on 200,000 rows, beside its bare parts. The last line is one
JSON object.

Two files: ``short``, 17 MB of sums, and ``long``, rows of 1 KB. The tokenizer is a BPE of 32,000 tokens that learns from this repository,
with a chat template; the model is two small layers. ``bare``: the chat template and the tokenizer in batches of 1000, on the prompts of
the run, and the reward's ``check`` called in a loop, in one thread. ``cold``: nothing is in the user's cache; ``warm``: the same command
again. ``memory`` is the sum of the peaks of the run's processes, in MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlcore_plugin_math import BOXED
from rlcore_plugin_math.options import BoxedOptions
from rlcore_plugin_math.rewards import BoxedReward
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

REPOSITORY = Path(__file__).parents[1]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY = 32_000


def main() -> None:
    """Measure both files, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    rows = parser.parse_args().rows
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a run has a thread for each process, and so have the bare parts
    found: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        place = Path(name)
        make_model(place / "model")
        for shape in ("short", "long"):
            write_rows(place / f"{shape}.jsonl", rows, long=shape == "long")
            found[shape] = measured(place, shape)
            print(shape, json.dumps(found[shape]), file=sys.stderr, flush=True)
    print(json.dumps({"rows": rows, **found}))


def measured(place: Path, shape: str) -> dict[str, Any]:
    """Run cold and warm between two measurements of the bare parts."""
    file, before = place / f"{shape}.jsonl", bare(place, shape)
    cold, warm = (run(place, shape) for _ in range(2))
    after = bare(place, shape)
    parts = {name: round((before[name] + after[name]) / 2, 1) for name in before}
    total = sum(parts.values())
    return {
        "megabytes": round(file.stat().st_size / 1e6),
        "bare": parts,
        "cold": cold["seconds"],
        "warm": warm["seconds"],
        "cold_to_bare": round(cold["seconds"] / total, 2),
        "memory": cold["memory"],
    }


def run(place: Path, shape: str) -> dict[str, float]:
    """Train one step as a user types it."""
    words = f"train -m model -d {shape}.jsonl -rt boxed --max-steps 1 -tbs 4 -g 4 -mnt 8 --run-dir {shape} --json"
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", *words.split()],
        cwd=place,
        env={**os.environ, "XDG_CACHE_HOME": str(place / f"cache-{shape}")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - begun
    summary = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": round(seconds, 1), "memory": round(summary["peak_memory_bytes"] / 2**20)}


def bare(place: Path, shape: str) -> dict[str, float]:
    """Seconds of the parts that no run can do without, one after the other."""
    rows = [json.loads(line) for line in (place / f"{shape}.jsonl").read_text().splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(place / "model")
    times = [time.monotonic()]
    chats = [[{"role": "system", "content": BOXED.system_prompt}, *row["messages"]] for row in rows]
    texts = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
    times.append(time.monotonic())
    for start in range(0, len(texts), 1000):
        tokenizer(texts[start : start + 1000], add_special_tokens=False)
    times.append(time.monotonic())
    reward = BoxedReward(BoxedOptions())
    assert not any(reward.check({"gt_answer": row["gt_answer"]}) for row in rows)
    times.append(time.monotonic())
    template, tokens, check = (after - before for before, after in pairwise(times))
    return {"template": template, "tokenizer": tokens, "check": check}


def write_rows(path: Path, rows: int, *, long: bool) -> None:
    """Write sums, after 900 characters of words if ``long``."""
    chosen = random.Random(7)
    words = [
        word for word in (REPOSITORY / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8").split() if word.isalpha()
    ]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            a, b = chosen.randrange(10**6), chosen.randrange(10**6)
            text = " ".join(chosen.choices(words, k=160))[:900] + " " if long else ""
            row = {"messages": [{"role": "user", "content": f"{text}{a} + {b}"}], "gt_answer": str(a + b)}
            file.write(json.dumps(row) + "\n")


def make_model(folder: Path) -> None:
    """Train the tokenizer, and save it with a model of random weights."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    files = [str(path) for kind in ("*.md", "*.py") for path in REPOSITORY.rglob(kind) if ".venv" not in path.parts]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train(files, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main()
