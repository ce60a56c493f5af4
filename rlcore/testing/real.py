"""Real parts of the core that a plugin's tests run against: the judge with its worker processes, the tokenizer that engines are given,
the registry, the plan of a run, the reader of data files, the way of weights into an engine. A plugin itself never needs them."""

from __future__ import annotations

from rlcore.data import load_eval
from rlcore.data.tokenizer import ChatTokenizer, load_tokenizer
from rlcore.entry import make_plan
from rlcore.registry.plugin_registry import Registry
from rlcore.rewards.judge import Judge
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.roles.engine_update import update_engine

__all__ = ["ChatTokenizer", "Judge", "Registry", "RewardEntry", "load_eval", "load_tokenizer", "make_plan", "update_engine"]
