"""Applies the rules to a run. Each problem is reported once, and again only if it went away and came back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcore_plugin_tools.health.metric_history import MetricHistory, MissingMetric
from rlcore_plugin_tools.health.rules import RULES, Rule

__all__ = ["HealthMonitor"]


class HealthMonitor:
    """The watch of one run. ``config``: its sections, as in ``RunInfo.config``."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._past = MetricHistory(config)
        self._well: dict[str, int] = {}
        """For each reported rule: the number of updates in a row without its problem since then."""

    def step(self, metrics: Mapping[str, float]) -> Sequence[str]:
        """Return the sentences to report after an update."""
        self._past.add(metrics)
        return list(self._told())

    def _told(self) -> Iterator[str]:
        for rule in RULES:
            try:
                sentence = rule.look(self._past, rule)
            except MissingMetric:  # no result
                continue
            if sentence is None:
                self._see_well(rule)
            elif rule.name in self._well:
                self._well[rule.name] = 0
            elif not any(name in self._well for name in rule.behind):
                self._well[rule.name] = 0
                yield sentence.replace("%", " %")

    def _see_well(self, rule: Rule) -> None:
        """Count an update without the problem. A problem counts as gone after two windows in a row, so a figure near its threshold is not
        reported again and again."""
        if rule.name in self._well:
            self._well[rule.name] += 1
            if self._well[rule.name] >= 2 * rule.window:
                del self._well[rule.name]
