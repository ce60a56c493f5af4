"""A resources server as users of NeMo Gym write it: a calculator, and a reward for the right last answer."""

import os
import re
from pathlib import Path

from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from pydantic import BaseModel


class CalculatorConfig(BaseResourcesServerConfig):
    crashes: int = 0
    """How many servers end in the first call of the tool. Each leaves a file in the folder ``left``."""
    left: str = ""


class Calculation(BaseModel):
    expression: str


class CalculatorVerifyRequest(BaseVerifyRequest):
    gt_answer: str


class CalculatorVerifyResponse(BaseVerifyResponse):
    tool_answers: int


class CalculatorServer(SimpleResourcesServer):
    config: CalculatorConfig

    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/calculator")(self.calculator)
        return app

    async def calculator(self, body: Calculation) -> int:
        if self.config.crashes and len(list(Path(self.config.left).iterdir())) < self.config.crashes:
            Path(self.config.left, str(os.getpid())).touch()
            os._exit(3)
        left, sign, right = re.fullmatch(r"(\d+)([+*])(\d+)", body.expression).groups()
        return int(left) + int(right) if sign == "+" else int(left) * int(right)

    async def verify(self, body: CalculatorVerifyRequest) -> CalculatorVerifyResponse:
        if body.gt_answer == "sys.exit":
            raise SystemExit(3)
        last, given = body.response.output[-1], body.model_dump()
        said = last.content[0].text if last.type == "message" else ""
        answers = sum(item.type == "function_call_output" for item in body.response.output)
        return CalculatorVerifyResponse(**given, reward=float(said == body.gt_answer), tool_answers=answers)
