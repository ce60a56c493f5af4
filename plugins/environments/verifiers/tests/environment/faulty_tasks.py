"""Tasks with planted faults, one by name."""

import asyncio
import os
import signal

import verifiers.v1 as vf

__all__ = ["FaultyTaskset"]

FAULTS = ("sound", "unrewarded", "setup", "reward", "forged", "late", "exit", "killed", "stopped", "sys.exit")


class FaultyData(vf.TaskData):
    fault: str


class FaultyTask(vf.Task[FaultyData, vf.State, vf.TaskConfig]):
    async def setup(self, trace, runtime):
        if self.data.fault == "setup":
            raise OSError("the planted fault of setup")

    def hooks(self, attr):
        return [] if attr == "reward" and self.data.fault == "unrewarded" else super().hooks(attr)

    @vf.reward(weight=0.5)
    async def given(self, trace: vf.Trace) -> float:
        fault = self.data.fault
        if fault == "reward":
            raise ValueError("the planted fault of a reward")
        if fault == "sys.exit":
            raise SystemExit(3)
        if fault == "forged":
            trace.nodes[-1].token_ids[-1] += 1
        if fault == "late":
            await asyncio.sleep(60)
        if fault == "exit":
            os._exit(3)
        if fault in ("killed", "stopped"):
            os.kill(os.getpid(), signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
        return 1.0


class FaultyConfig(vf.TasksetConfig):
    ends: str = ""
    """Where the taskset calls sys.exit: "load" or "toolsets"."""


class FaultyTaskset(vf.Taskset[FaultyTask, FaultyConfig]):
    @classmethod
    def toolsets(cls, config):
        return cls.ending(config, "toolsets") or []

    @staticmethod
    def ending(config, where):
        if config.ends == where:
            raise SystemExit(4)

    def load(self):
        self.ending(self.config, "load")
        for fault in FAULTS:
            yield FaultyTask(FaultyData(name=fault, prompt="say", fault=fault), self.config.task)
