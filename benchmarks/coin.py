"""The control's reward: pays at random and still reports whether the answer is right, so that learning is measured and not rewarded."""

from __future__ import annotations

import hashlib

from rlcore.api import RewardInput, Score


def coin(item: RewardInput) -> Score:
    r"""Pays by a digest of the text and its prompt; ``accuracy`` is the exact match with ``\boxed{gt_answer}``."""
    right = item.text.strip() == rf"\boxed{{{item.columns['gt_answer']}}}"
    paid = hashlib.sha256(repr((item.text, item.messages)).encode()).digest()[0] % 2
    return Score(value=10.0 * paid, accuracy=float(right), format_ok=True)
