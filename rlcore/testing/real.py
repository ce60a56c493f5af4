"""Real parts of the core that a plugin's tests run against: the judge with its worker processes, the tokenizer that engines are given,
the registry. A plugin itself never needs them."""

from __future__ import annotations

from rlcore.data.tokenizer import ChatTokenizer, load_tokenizer
from rlcore.registry import Registry
from rlcore.rewards import Judge, RewardEntry

__all__ = ["ChatTokenizer", "Judge", "Registry", "RewardEntry", "load_tokenizer"]
