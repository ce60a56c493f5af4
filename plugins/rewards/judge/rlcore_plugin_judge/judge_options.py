"""Options that users set. This module is imported whenever a run is configured, so it imports no judging code."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from rlcore_plugin_extraction import Extraction

__all__ = ["AskOptions", "JudgeOptions", "PairwiseOptions"]


class AskOptions(BaseModel):
    """Options common to both rewards: the service, the budget, and the folder of replies."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    url: str = Field(pattern=r"^https?://", description='address of the service up to its version: "http://127.0.0.1:8000/v1"')
    model: str = Field(min_length=1, description="name of the judging model at the service")
    rubric: str = Field(min_length=1, description="text for the model that says which answers are good")
    columns: tuple[str, ...] = Field(default=(), description="columns of the row that the model sees, such as gt_answer")
    correct_score: float = Field(default=1.0, gt=0, description="value of the best verdict")
    extract: Extraction = Field(default=Extraction(by=("text",)), description="part of the response that is judged")
    max_chars: int = Field(default=20_000, ge=1, description="longest answer that is judged; a longer one is wrong")
    api_key_env: str = Field(default="", description='environment variable with the key of the service; "": no key is sent')
    temperature: float = Field(default=0.0, ge=0, description="sampling temperature of the judging model")
    max_tokens: int = Field(default=1024, ge=1, description="longest reply in tokens, including its reasoning")
    body: dict[str, Any] = Field(default_factory=dict, description="further fields of each request")
    request_seconds: float = Field(default=60.0, gt=0, description="time for one request")
    calls_at_once: int = Field(default=16, ge=1, description="responses that are judged at the same time, on each node")
    calls_per_second: float = Field(default=0.0, ge=0, description="responses whose judging starts each second; 0: see calls_at_once")
    retries: int = Field(default=3, ge=0, description="further attempts if the service does not answer, or is too busy")
    folder: str = Field(default="", description='folder for replies and for the account of the spending; "": none')
    max_calls: int = Field(default=0, ge=0, description="budget of requests of this folder; 0: unlimited")
    max_total_tokens: int = Field(default=0, ge=0, description="budget of tokens of prompts and replies; 0: unlimited")
    max_cost: float = Field(default=0.0, ge=0, description="budget of money, in the unit of the prices; 0: unlimited")
    price_in: float = Field(default=0.0, ge=0, description="price of a million tokens of prompts")
    price_out: float = Field(default=0.0, ge=0, description="price of a million tokens of replies")

    @model_validator(mode="after")
    def _budgeted(self) -> Self:
        if (self.max_calls or self.max_total_tokens or self.max_cost) and not self.folder:
            raise ValueError("a budget needs a folder in which the spending is recorded: a new process would not know it otherwise")
        if self.max_cost and not (self.price_in or self.price_out):
            raise ValueError("max_cost needs price_in and price_out")
        return self


class JudgeOptions(AskOptions):
    """Options of ``llm_judge``."""

    lowest: float = Field(default=0.0, description="the worst mark, worth 0")
    highest: float = Field(default=10.0, description="the best mark, worth correct_score")

    @model_validator(mode="after")
    def _scale(self) -> Self:
        if not self.lowest < self.highest:
            raise ValueError(f"lowest {self.lowest:g} must be below highest {self.highest:g}")
        return self


class PairwiseOptions(AskOptions):
    """Options of ``llm_pairwise``."""

    reference: str = Field(default="reference", min_length=1, description="column of the row with the answer to compare with")
    both_orders: bool = Field(
        default=True, description="ask twice, with each answer first once; if the two disagree, it is a tie; false: ask once"
    )
