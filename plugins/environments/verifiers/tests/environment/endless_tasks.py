"""A taskset without an end, whose package has no environment of its own."""

import itertools

import verifiers.v1 as vf

__all__ = ["EndlessTaskset"]


class EndlessTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class EndlessTaskset(vf.Taskset[EndlessTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        for number in itertools.count():
            yield EndlessTask(vf.TaskData(prompt=f"say {number}"), self.config.task)
