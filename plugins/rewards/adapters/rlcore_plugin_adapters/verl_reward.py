"""A reward function of verl (``custom_reward_function``): ``compute_score(data_source, solution_str, ground_truth, extra_info)``. It is
called by keywords and returns a number or a mapping with ``score``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.api import Reward, RewardInput, Score
from rlcore_plugin_adapters.adapter_options import VerlCallOptions, VerlOptions
from rlcore_plugin_adapters.named_function import NamedFunction, column_at, number_or_none, plain_score

__all__ = ["VerlReward"]

_TRUTHS = ("reward_model.ground_truth", "ground_truth", "gt_answer")
_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")


class VerlReward(Reward):
    """``score`` of a mapping is the reward, ``acc`` the accuracy, ``pred`` the parsed answer; its other numbers are parts."""

    def __init__(self, options: VerlCallOptions) -> None:
        self.options = options
        self._function = self._found(options)
        self._function.refuse_other_keywords((*_ARGUMENTS, *options.kwargs), options.columns, "verl")
        self._truths = (options.ground_truth,) if options.ground_truth else _TRUTHS
        firsts = [path.partition(".")[0] for path in self._truths]
        self.requires = tuple(dict.fromkeys(["data_source", "extra_info", *firsts, *options.columns]))

    def _found(self, options: VerlCallOptions) -> NamedFunction:
        assert isinstance(options, VerlOptions)
        return NamedFunction.load(options.function)

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Return why the row has no ground truth, or which further columns of the function it lacks; None if nothing is missing."""
        if self._truth(columns) is None:
            return f"it has no ground truth in any of {', '.join(self._truths)}; set ground_truth = COLUMN in the options"
        if not isinstance(columns.get("extra_info") or {}, Mapping):
            return f"its extra_info is a {type(columns['extra_info']).__name__}; it must be an object"
        missing = [name for name in self.options.columns if name not in columns]
        return f"it lacks the column {' and '.join(missing)}" if missing else None

    def score(self, item: RewardInput) -> Score:
        """Return the score. Any exception of the function is outcome ``error``."""
        columns = item.columns
        given = {
            **self.options.kwargs,
            **{name: columns[name] for name in self.options.columns},
            "data_source": columns.get("data_source", self.options.data_source),
            "solution_str": item.text,
            "ground_truth": self._truth(columns),
            "extra_info": dict(columns.get("extra_info") or {}),
        }
        result = self._function.call(given, always=(*_ARGUMENTS, *self.options.kwargs))
        return self._scored(result)

    def _truth(self, columns: Mapping[str, Any]) -> Any:
        found = (column_at(columns, path) for path in self._truths)
        return next((truth for truth in found if truth is not None), None)

    def _scored(self, result: Any) -> Score:
        if not isinstance(result, Mapping):
            result = {"score": result}
        if "score" not in result:
            raise KeyError(f"the function returned a mapping without 'score': {', '.join(map(str, result))}")
        value = number_or_none(result["score"], "the score")
        if value is None:
            raise TypeError("the score is None or NaN; it must be a number")
        more: dict[str, Any] = {"parts": {str(name): float(part) for name, part in result.items() if _is_part(name, part)}}
        accuracy = result.get("acc")
        if isinstance(accuracy, bool | int | float) and 0 <= accuracy <= 1:
            more["accuracy"] = float(accuracy)
        if result.get("pred") is not None:
            more["parsed"] = str(result["pred"])
        return plain_score(value, right=self.options.right, **more)


def _is_part(name: Any, part: Any) -> bool:
    return name not in ("score", "acc") and isinstance(part, bool | int | float) and abs(part) < float("inf")
