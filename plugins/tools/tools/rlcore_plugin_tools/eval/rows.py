"""A row of an evaluation and back: the figures of rows that were read from a file are those of the answers that wrote them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcore.api import FinishReason, Outcome, Rollout, Score, Segment
from rlcore.api.runtime import GroupJob, ProducedGroup
from rlcore_plugin_tools.eval.costs import AnswerCost
from rlcore_plugin_tools.eval.part_file import plain_row

__all__ = ["group_of", "row_of"]


def row_of(row: Mapping[str, Any], score: Score, cost: AnswerCost, prompt_index: int) -> dict[str, Any]:
    """Return the row of a run's evaluation with what only ``rlcore eval`` writes: the number of the prompt in its task, whether the answer
    is masked (it counts neither for nor against), and its cost."""
    return plain_row({**row, "prompt_index": prompt_index, "masked": not score.in_statistics, "cost": cost.as_json()})


def group_of(job: GroupJob, rows: Sequence[Mapping[str, Any]]) -> ProducedGroup:
    """Return the group of these rows, with tokens of which only the number is right: figures depend on nothing else."""
    return ProducedGroup(job=job, rollouts=tuple(map(_rollout, rows)), scores=tuple(map(_score, rows)))


def _rollout(row: Mapping[str, Any]) -> Rollout:
    tokens = np.zeros(row["response_length"], np.int32)
    segment = Segment(
        context_ids=tokens[:0],
        token_ids=tokens,
        logprobs=tokens.astype(np.float32),
        versions=tokens,
        policy_mask=np.ones(len(tokens), np.bool_),
    )
    return Rollout(
        prompt_id=row["prompt_id"],
        index=row["index"],
        segments=(segment,),
        text=row["prediction"],
        finish=FinishReason(row["finish"]),
        extra=row.get("extra", {}),
    )


def _score(row: Mapping[str, Any]) -> Score:
    return Score(
        value=math.nan if row["reward"] is None else row["reward"],
        accuracy=row["ans_valid"],
        format_ok=row["format_valid"],
        outcome=Outcome(row["outcome"]),
        reason=row["reason"],
        parsed=row["parsed"],
        in_statistics=not row["masked"],
    )
