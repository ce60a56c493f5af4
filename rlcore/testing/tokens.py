"""A tokenizer of single characters, or of given texts, with a chat template; and the folder of a fake model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.contracts.errors import ConfigError
from rlcore.contracts.types import Message
from rlcore.testing.policy import FakePolicy

__all__ = ["FakeTokenizer", "load_fake_tokenizer", "write_fake_model"]

SPECIAL = ("end", "unknown", "system", "user", "assistant")
FILE = "fake_tokenizer.json"
CHARACTERS = " 0123456789abcdefghijklmnopqrstuvwxyz"


class FakeTokenizer:
    """One token a character. Ids: 0 end, 1 unknown, 2 system, 3 user, 4 assistant, then the characters in their order.

    ``characters`` may hold longer texts, too: a policy can write each with one token, and a prompt cannot hold them.
    """

    def __init__(self, characters: str | Sequence[str] = CHARACTERS) -> None:
        self.characters = characters
        self.stop_ids = frozenset({0})
        self._ids = {character: len(SPECIAL) + place for place, character in enumerate(characters)}

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the characters; ``unknown`` for one outside the alphabet."""
        return [self._ids.get(character, 1) for character in text]

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
        """Return int32[C]: each message is its role's token and its characters; the assistant's token asks for the answer.

        Tools come first, as a message of the system with their names."""
        names = [str(tool.get("function", tool).get("name")) for tool in tools]
        ids = [SPECIAL.index("system"), *self.encode(" ".join(names))] if names else []
        for message in messages:
            role = SPECIAL.index(message.role) if message.role in SPECIAL else 1
            ids += [role, *self.encode(message.content)]
        return np.array([*ids, SPECIAL.index("assistant")], np.int32)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text without special tokens."""
        return "".join(self.characters[token - len(SPECIAL)] for token in token_ids if token >= len(SPECIAL))

    def fingerprint(self) -> str:
        """Return the SHA-256 of the alphabet."""
        return hashlib.sha256("".join(self.characters).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write it as one JSON file."""
        (folder / FILE).write_text(json.dumps({"characters": self.characters}), "utf-8")


def load_fake_tokenizer(path: str) -> FakeTokenizer:
    """Read the tokenizer that ``FakeTokenizer.save`` wrote into the folder."""
    file = Path(path) / FILE
    if not file.is_file():
        raise ConfigError(f"model {path!r} has no {FILE}: write one with rlcore.testing.write_fake_model(folder)")
    return FakeTokenizer(json.loads(file.read_text("utf-8"))["characters"])


def write_fake_model(folder: Path, characters: str = CHARACTERS, seed: int = 0, scale: float = 0.1) -> Path:
    """Write a folder that serves as ``model`` for the ``fake`` backends, with policy and tokenizer; return it."""
    tokenizer = FakeTokenizer(characters)
    FakePolicy.random(len(tokenizer), seed, scale).save(folder)
    tokenizer.save(folder)
    return folder
