r"""The quickstart's tokenizer: 88 tokens, one per character, one each for ``sort``, ``\boxed{`` and the chat's markers.

For a Qwen2 model ``AutoTokenizer`` always rebuilds Qwen2's own class from the vocabulary, whatever class the folder names. It silently
changes a tokenizer of another class, which then loses its spaces. This tokenizer therefore *is* of that class: a byte-level vocabulary (a
space is ``Ġ``) without merges, and whole words as added tokens. The saved tokenizer is loaded and compared before it is used.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from rlcore.api import RunError

__all__ = ["CHAT_TEMPLATE", "END", "PAD", "VOCABULARY", "build_tokenizer", "check_round_trip"]

PAD, END = "<|pad|>", "<|end|>"
MARKERS = (PAD, END, "<|system|>", "<|user|>", "<|assistant|>")
WORDS = (r"\boxed{", "sort")
CHARACTERS = "0123456789 \n" + string.ascii_letters + "\\{}()[]+-*/=.,:?!"
_BYTE_LEVEL = {" ": "Ġ", "\n": "Ċ"}
VOCABULARY = (*MARKERS, *WORDS, *(_BYTE_LEVEL.get(character, character) for character in CHARACTERS))

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tokenizer() -> Any:
    """Return the tokenizer as a transformers ``Qwen2Tokenizer``, with its chat template."""
    from tokenizers import AddedToken
    from transformers import Qwen2Tokenizer

    tokenizer = Qwen2Tokenizer(
        vocab={token: index for index, token in enumerate(VOCABULARY)},
        merges=[],
        unk_token=PAD,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([AddedToken(marker, special=True, normalized=False) for marker in MARKERS])
    tokenizer.add_tokens([AddedToken(word, special=False, normalized=False) for word in WORDS])
    tokenizer.model_max_length = 256
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def check_round_trip(folder: Path) -> None:
    """Load the saved tokenizer in the usual way and compare; RunError if one token or one space differs."""
    from transformers import AutoTokenizer

    loaded, built = AutoTokenizer.from_pretrained(folder), build_tokenizer()
    text = "<|user|>sort 8 3 1 6<|end|><|assistant|>\\boxed{1 3 6 8}<|end|>\n  " + CHARACTERS
    ids = loaded.encode(text, add_special_tokens=False)
    same = ids == built.encode(text, add_special_tokens=False) and len(loaded) == len(VOCABULARY)
    if not same or loaded.decode(ids) != text or loaded.chat_template != CHAT_TEMPLATE:
        raise RunError(
            f"{folder}: the tokenizer that was written is not the one that AutoTokenizer reads back; "
            "report this with the output of `pip list`; the versions in constraints.txt are known to work"
        )
