"""Run reward plugins: worker processes, hard deadlines, typed outcomes, mixing. Knows nothing of models, tokens or schedules.

``Judge`` is what the rest of rlcore uses: groups go in, groups of scores come out. Beneath it ``RewardPool`` keeps the processes.
"""

from rlcore.rewards.judge import Judge
from rlcore.rewards.pool import RewardPool
from rlcore.rewards.protocol import WorkerLimits
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.rewards.tally import VerdictCounts

__all__ = ["Judge", "RewardEntry", "RewardPool", "VerdictCounts", "WorkerLimits"]
