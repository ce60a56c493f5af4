"""Run reward plugins: worker processes, hard deadlines, typed outcomes and mixing. Has no knowledge of models, tokens or schedules.

The rest of rlcore uses ``judge.Judge``, which takes groups and returns their scores. Below it, ``pool.RewardPool`` manages the processes.
This module imports neither, because every worker process imports it: importing the judge would add half a second to each start.
"""
