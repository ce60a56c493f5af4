r"""The quickstart's tokenizer: 88 tokens, one per character, one each for ``sort``, ``\boxed{`` and the chat's markers.

The task with a calculator has 101: one each for the constant beginning and the constant end of a call makes a call short.

For a Qwen2 model ``AutoTokenizer`` always rebuilds Qwen2's own class from the vocabulary, whatever class the folder names. It silently
changes a tokenizer of another class, which then loses its spaces. This tokenizer therefore *is* of that class: a byte-level vocabulary (a
space is ``Ġ``) without merges, and whole words as added tokens. The saved tokenizer is loaded and compared before it is used.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcore.api import RunError

__all__ = ["ASSISTANT", "CHAT_TEMPLATE", "END", "PAD", "TOOL_WORDS", "VOCABULARY", "build_tokenizer", "check_round_trip"]

PAD, END, ASSISTANT = "<|pad|>", "<|end|>", "<|assistant|>"
MARKERS = (PAD, END, "<|system|>", "<|user|>", ASSISTANT)
WORDS = (r"\boxed{", "sort")
CHARACTERS = "0123456789 \n" + string.ascii_letters + "\\{}()[]+-*/=.,:?!"
_BYTE_LEVEL = {" ": "Ġ", "\n": "Ċ"}
VOCABULARY = (*MARKERS, *WORDS, *(_BYTE_LEVEL.get(character, character) for character in CHARACTERS))

TOOL_MARKER = "<|tool|>"
TOOL_WORDS = (
    '<tool_call>{"name": "calculator", "arguments": {"expression": "',
    '"}}</tool_call>',
    "calculator",
    "calculate",
    "what is",
    "maybe",
    *"\"<>_|'",
)
"""The words and characters of a call, which a decoder must not leave out: they are not special tokens."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


TOOLS_TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool['function']['name'] }}{% endfor %}<|end|>{% endif %}"
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] or '' }}"
    "{% for call in message['tool_calls'] or [] %}"
    """<tool_call>{"name": "{{ call['function']['name'] }}", "arguments": {{ call['function']['arguments'] | tojson }}}</tool_call>"""
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Calls are written as Hermes and Qwen write them."""


def build_tokenizer(*, tools: bool = False, words: Sequence[str] = ()) -> Any:
    """Return the tokenizer as a transformers ``Qwen2Tokenizer``, with its chat template.

    ``tools``: with the tokens of calls. ``words``: further texts that become one token each.
    """
    from tokenizers import AddedToken
    from transformers import Qwen2Tokenizer

    markers, own = ((*MARKERS, TOOL_MARKER), (*WORDS, *TOOL_WORDS)) if tools else (MARKERS, WORDS)
    tokenizer = Qwen2Tokenizer(
        vocab={token: index for index, token in enumerate([*VOCABULARY, *((TOOL_MARKER, *TOOL_WORDS) if tools else ()), *words])},
        merges=[],
        unk_token=PAD,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    tokenizer.add_tokens([AddedToken(word, special=False, normalized=False) for word in (*own, *words)])
    tokenizer.model_max_length = 256
    tokenizer.chat_template = TOOLS_TEMPLATE if tools else CHAT_TEMPLATE
    return tokenizer


def check_round_trip(folder: Path, *, tools: bool = False, words: Sequence[str] = ()) -> None:
    """Load the saved tokenizer in the usual way and compare; RunError if one token or one space differs."""
    from transformers import AutoTokenizer

    loaded, built = AutoTokenizer.from_pretrained(folder), build_tokenizer(tools=tools, words=words)
    text = (
        "<|user|>sort 8 3 1 6<|end|><|assistant|>\\boxed{1 3 6 8}<|end|>\n  "
        + CHARACTERS
        + "".join([*(TOOL_WORDS if tools else ()), *words])
    )
    ids = loaded.encode(text, add_special_tokens=False)
    same = ids == built.encode(text, add_special_tokens=False) and len(loaded) == len(built)
    if not same or loaded.decode(ids) != text or loaded.chat_template != built.chat_template:
        raise RunError(
            f"{folder}: the tokenizer that was written is not the one that AutoTokenizer reads back; "
            "report this with the output of `pip list`; the versions in constraints.txt are known to work"
        )
