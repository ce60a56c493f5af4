"""A taskset with a tool as users of verifiers write it: the calculator of the quickstart, in a server that all episodes share."""

import json
import re
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["CalculatorTaskset"]


class CalculatorTools(vf.Toolset[vf.SharedToolsetConfig, vf.State]):
    TOOL_PREFIX = None

    @vf.tool
    async def calculator(self, expression: str) -> str:
        """Calculate a sum or a product."""
        numbers = re.fullmatch(r"(\d+)([+*])(\d+)", expression)
        if not numbers:
            return "error"
        left, sign, right = int(numbers[1]), numbers[2], int(numbers[3])
        return str(left + right if sign == "+" else left * right)


class CalculatorConfig(vf.TasksetConfig):
    file: Path
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class CalculatorData(vf.TaskData):
    answer: str


class CalculatorTask(vf.Task[CalculatorData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def solved(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.metric
    async def tool_calls(self, trace: vf.Trace) -> float:
        return float(len(trace.tool_messages))


class CalculatorTaskset(vf.Taskset[CalculatorTask, CalculatorConfig]):
    @classmethod
    def toolsets(cls, config):
        return [CalculatorTools(config.tools)]

    def load(self):
        for line in self.config.file.read_text().splitlines():
            row = json.loads(line)
            yield CalculatorTask(CalculatorData(prompt=row["messages"]["content"], answer=row["gt_answer"]), self.config.task)


if __name__ == "__main__":
    CalculatorTools.run()
