"""TRL's GRPOTrainer for three steps with rewards of rlcore, in an environment of TRL's: ``python three_steps.py FOLDER``.

A tiny model that has learned nothing; the sum of a reward by name (``boxed``) and of one that hangs on every response of an even number of
characters. The last line is one JSON object: the responses, what the function returned, and what the trainer logged of it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from rlcore_plugin_adapters import trl
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

DEADLINE = 1.0
STEPS = 3


def hangs(item: Any) -> float:
    """A tenth of the length, if it ends."""
    if len(item.text) % 2 == 0:
        time.sleep(1000)
    return len(item.text) / 10


def tokenizer() -> PreTrainedTokenizerFast:
    """Words of one character and the box, with the least chat template."""
    words = ["<pad>", "<end>", "<unk>", "\\boxed{", "}", *"0123456789+?ua:"]
    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>", unk_token="<unk>", padding_side="left")
    made.chat_template = (
        "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
    )
    return made


def model(words: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """One layer."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    ends = {"pad_token_id": words.pad_token_id, "eos_token_id": words.eos_token_id, "bos_token_id": None}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), **sizes, **ends))


def main(folder: Path) -> None:
    """Train, then print what was seen."""
    words = tokenizer()
    both = [{"name": "boxed", "options": {"correct_score": 1.0}}, {"name": hangs, "deadline": DEADLINE}]
    reward = trl(both, columns={"gt_answer": "solution"}, workers=2, length_limit=6)
    seen: list[tuple[str, float | None]] = []

    def kept(**given: Any) -> list[float | None]:
        values: list[float | None] = reward(**given)
        seen.extend(zip((completion[0]["content"] for completion in given["completions"]), values, strict=True))
        return values

    rows = [{"prompt": [{"role": "user", "content": f"{a}+{b}?"}], "solution": str(a + b)} for a in range(1, 5) for b in range(1, 5)]
    trainer = GRPOTrainer(
        model=model(words),
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=STEPS,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=6,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            use_cpu=True,
            disable_tqdm=True,
            seed=0,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=words,
        reward_funcs=kept,
    )
    trainer.train()
    reward.close()
    logged = [record for record in trainer.state.log_history if "reward" in record]
    print(json.dumps({"steps": trainer.state.global_step, "seen": seen, "logged": logged}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
