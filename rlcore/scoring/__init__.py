"""Judging without a run: a file of completions (``rlcore score``), or hostile texts against one reward (``rlcore audit``).

Knows files, rewards and verdicts; knows nothing of models, tokens or training, and nothing of how a terminal looks.
"""

from rlcore.scoring.choice import RewardChoice, choose_rewards
from rlcore.scoring.items import Item, TextVerdict
from rlcore.scoring.scorer import Scorer

__all__ = ["Item", "RewardChoice", "Scorer", "TextVerdict", "choose_rewards"]
