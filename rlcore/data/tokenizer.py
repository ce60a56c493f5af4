"""The tokenizer of a model with a chat template. A plugin reads it: ``rlcore_tokenizer_class``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from rlcore.config.run_config import DataSection
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.interfaces import Tokenizer
from rlcore.contracts.types import Prompt
from rlcore.registry.offers import offered

__all__ = ["ChatTokenizer", "load_tokenizer", "tokenizer_class"]


class ChatTokenizer(Tokenizer):
    """A tokenizer that renders messages with the chat template of a Hugging Face model."""

    @classmethod
    @abstractmethod
    def load(cls, path: str, *, model: str | None, trust_remote_code: bool, data: DataSection) -> ChatTokenizer:
        """Load the tokenizer from a folder or by hub name. Raises ConfigError if there is none or it has no chat template.

        :param model: the folder of the model, if it is another one. A response ends with the stop tokens of either.
        :param trust_remote_code: run Python code in the folder without asking.
        :param data: the settings of the chat template.
        """

    @abstractmethod
    def lengths(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return the number of tokens of each prompt as ``render`` gives it. Raises what ``render`` raises, for one of the prompts."""

    @abstractmethod
    def stop_at(self, strings: Sequence[str]) -> None:
        """Let stop strings that are special tokens end a response. Raises ConfigError for one that would never match."""

    @abstractmethod
    def remarks(self) -> list[str]:
        """Return sentences about the chat template that the user should read."""


def load_tokenizer(
    path: str, *, model: str | None = None, trust_remote_code: bool = False, data: DataSection | None = None
) -> ChatTokenizer:
    """Load a tokenizer as ``ChatTokenizer.load`` of the plugin does; ``data``: the defaults if None."""
    own: ChatTokenizer = tokenizer_class(path).load(path, model=model, trust_remote_code=trust_remote_code, data=data or DataSection())
    return own


def tokenizer_class(path: str = "") -> Any:
    """Return the class of the first plugin that offers one. Raises ConfigError, for the tokenizer ``path``, if no plugin does."""
    return offered("rlcore_tokenizer_class", f"tokenizer {path!r}", ConfigError)
