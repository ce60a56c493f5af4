"""Judging without a run: a file of completions (``rlcore score``), or hostile texts against one reward (``rlcore audit``).

Knows files, rewards and verdicts; knows nothing of models, tokens or training, and nothing of how a terminal looks.
"""

from rlcore.scoring.choice import Choice, choose_rewards
from rlcore.scoring.items import Item, Verdict
from rlcore.scoring.scorer import Scorer

__all__ = ["Choice", "Item", "Scorer", "Verdict", "choose_rewards"]
