"""Holds the rules against a run: each is told once, and again only after it went away and came back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcore_plugin_tools.health.metric_history import MetricHistory, MissingMetric
from rlcore_plugin_tools.health.rules import RULES, Rule

__all__ = ["HealthMonitor"]


class HealthMonitor:
    """Of one run. ``config``: its sections, as ``RunInfo.config`` has them."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._past = MetricHistory(config)
        self._well: dict[str, int] = {}
        """For each rule that was told: in how many updates since then, in a row, nothing was seen."""

    def step(self, metrics: Mapping[str, float]) -> Sequence[str]:
        """The sentences to tell after an update."""
        self._past.add(metrics)
        return list(self._told())

    def _told(self) -> Iterator[str]:
        for rule in RULES:
            try:
                sentence = rule.look(self._past, rule)
            except MissingMetric:  # neither ill nor well
                continue
            if sentence is None:
                self._see_well(rule)
            elif rule.name in self._well:
                self._well[rule.name] = 0
            elif not any(name in self._well for name in rule.behind):
                self._well[rule.name] = 0
                yield sentence.replace("%", " %")

    def _see_well(self, rule: Rule) -> None:
        """A figure that hovers about a threshold is no news each time: it is away after two windows in a row without."""
        if rule.name in self._well:
            self._well[rule.name] += 1
            if self._well[rule.name] >= 2 * rule.window:
                del self._well[rule.name]
