"""The class that reads tokenizers of Hugging Face models in this installation, for a plugin's tests."""

from __future__ import annotations

from typing import Any

from rlcore.data.tokenizer import tokenizer_class

__all__ = ["ChatTokenizer"]

ChatTokenizer: Any = tokenizer_class()
"""It also wraps a tokenizer of transformers: ``ChatTokenizer(inner)``."""
