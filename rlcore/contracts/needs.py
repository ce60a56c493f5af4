"""The inputs that losses and estimators declare, and the models whose log probabilities a trainer computes."""

from __future__ import annotations

from enum import StrEnum

from rlcore.contracts.public_members import EnumMembers

__all__ = ["ModelRole", "Need", "RewardDetail"]


class Need(StrEnum, metaclass=EnumMembers):
    """The inputs that a loss needs; rlcore computes no others."""

    OLD = "old"
    """Old log probabilities already in ``prepare``. ``per_token`` always has them."""
    REFERENCE = "reference"
    ENTROPY = "entropy"


class RewardDetail(StrEnum, metaclass=EnumMembers):
    """The fields of ``RewardBatch`` that an estimator needs in addition to the rewards; rlcore gathers no others.

    The value is the field's name.
    """

    PARTS = "parts"
    RAW_PARTS = "raw_parts"
    TOKEN_REWARDS = "token_rewards"
    PROMPT_IDS = "prompt_ids"
    TURNS = "turn_lengths"
    """Includes ``turn_offsets``."""
    ROLLOUT_LOGPROBS = "rollout_logprobs"


class ModelRole(StrEnum, metaclass=EnumMembers):
    """The model whose log probabilities a training backend computes."""

    POLICY = "policy"
    REFERENCE = "reference"
