"""avg@k, pass@k and maj@k of the completions of a prompt, as in ``rlcore eval``, for a scored file.

A group is a row that holds a list of completions, or all rows that have the same ``id``.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlcore.learning import majority_at_k, mean_interval, pass_at_k, usual_ks
from rlcore_plugin_tools.score.items import TextVerdict

__all__ = ["GroupFigures"]

_Known = list[tuple[float, str | None]]


class GroupFigures:
    """Collects verdicts. Verdicts without an accuracy, and failures, which are not about the text, are left out, as in an evaluation."""

    def __init__(self) -> None:
        self._groups: defaultdict[str, _Known] = defaultdict(list)

    def add(self, verdict: TextVerdict) -> None:
        """Add one verdict."""
        score = verdict.score
        name = f"id {verdict.row_id}" if verdict.row_id is not None else f"line {verdict.line}" if verdict.place is not None else ""
        if name and verdict.counts and score.accuracy is not None:
            parsed = None if score.parsed is None else hashlib.sha256(score.parsed.encode("utf-8", "replace")).hexdigest()[:32]
            self._groups[name].append((score.accuracy, parsed))

    def as_json(self) -> dict[str, Any] | None:
        """Return figures with their 95 % intervals over the prompts, by k; None if no prompt has several judged completions."""
        groups = [known for known in self._groups.values() if known]
        most = max(map(len, groups), default=0)
        if most < 2:
            return None
        figures: dict[str, Any] = {"prompts": len(groups), "completions": sum(map(len, groups))}
        figures["avg"] = _interval([sum(accuracy for accuracy, _ in known) / len(known) for known in groups], most)
        voted = any(parsed is not None for known in groups for _, parsed in known)  # without parsed answers there is no majority
        for k in usual_ks(most):
            enough = [known for known in groups if len(known) >= k]
            figures[f"pass@{k}"] = _interval([pass_at_k(len(known), sum(_accuracies(known)), k) for known in enough], most)
            if not voted:
                continue
            votes = [majority_at_k([parsed for _, parsed in known], _accuracies(known), k) for known in enough]
            figures[f"maj@{k}"] = _interval(votes, most)
        return figures


def _accuracies(known: _Known) -> list[float]:
    return [min(max(accuracy, 0.0), 1.0) for accuracy, _ in known]


def _interval(values: Sequence[float], completions: int) -> dict[str, float]:
    bounded = [min(max(value, 0.0), 1.0) for value in values]
    return {**asdict(mean_interval(bounded, completions)), "prompts": len(values)}
