"""Run reward plugins: worker processes, hard deadlines, typed outcomes, mixing. Knows nothing of models, tokens or schedules.

``judge.Judge`` is what the rest of rlcore uses: groups go in, groups of scores come out. Beneath it, ``pool.RewardPool`` keeps processes.
This module imports neither, for each of these processes imports it: half a second of a worker's start would be the judge's.
"""
