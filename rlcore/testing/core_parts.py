"""Parts of the core for a plugin's tests: the judge with its worker processes, tokenizers, the registry, the plan of a run, the reader
of data files, an engine's update. A plugin itself does not need them."""

from __future__ import annotations

from rlcore.data import load_eval
from rlcore.data.tokenizer import load_tokenizer
from rlcore.entry import make_plan
from rlcore.registry.plugin_registry import Registry
from rlcore.rewards.judge import Judge
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.roles.engine_update import update_engine

__all__ = ["Judge", "Registry", "RewardEntry", "load_eval", "load_tokenizer", "make_plan", "update_engine"]
