"""A reward function of TRL, called as TRL's trainer calls it.

TRL 1.16 (``GRPOTrainer``) calls ``fn(prompts=…, completions=…, completion_ids=…, **columns, trainer_state=…, log_extra=…, log_metric=…)``.
Arguments with data are lists with one entry for each completion. The function returns a list of floats, None if it does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from rlcore.api import Message, PluginError, Reward, RewardInput, Score
from rlcore_plugin_adapters import TRL_FUNCTION
from rlcore_plugin_adapters.adapter_options import TrlCallOptions, TrlOptions
from rlcore_plugin_adapters.named_function import NamedFunction, number_or_none, plain_score

__all__ = ["TrlReward"]

_OF_TRL = frozenset({"prompts", "completions", "completion_ids", "log_extra", "log_metric"})
_OF_THE_TRAINER = frozenset({"trainer_state", "environments"})
_NO_COLUMNS = frozenset({"prompt", "completion", "completion_ids"})


class TrlReward(Reward, spec=TRL_FUNCTION):
    """Calls the function for one response, or for all responses of a prompt. Values that it logs by ``log_metric`` become parts of the
    scores."""

    def __init__(self, options: TrlCallOptions) -> None:
        self.options = options
        self._function = self._found(options)
        if missing := self._function.required & _OF_THE_TRAINER:
            raise PluginError(
                f"function {self._function.reference!r} asks for {' and '.join(sorted(missing))}, which only TRL's trainer provides"
            )
        self._function.refuse_other_keywords(("prompts", "completions"), self._function.required - {"self"}, "TRL")
        columns = self._function.named - _OF_TRL - _OF_THE_TRAINER - _NO_COLUMNS
        self.requires = tuple(sorted({*columns, *options.columns, *(["prompt"] if options.form == "auto" else [])}))
        self._needed = tuple(sorted({*(columns & self._function.required), *options.columns}))
        self.group_level = options.batch == "group"

    def _found(self, options: TrlCallOptions) -> NamedFunction:
        assert isinstance(options, TrlOptions)
        return NamedFunction.load(options.function)

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Return which required columns the row lacks; None if it has all."""
        missing = [name for name in self._needed if name not in columns]
        return f"the function {self._function.reference} needs the column {' and '.join(missing)}" if missing else None

    def score(self, item: RewardInput) -> Score:
        return self.score_group([item])[0]

    def score_group(self, items: Sequence[RewardInput]) -> list[Score]:
        """Return the scores. Any exception of the function is outcome ``error``, and so is a list of another length."""
        if not self.group_level and len(items) > 1:
            return [self.score(item) for item in items]
        metrics: dict[str, float] = {}
        values = self._function.call(self._given(items, metrics), always=("prompts", "completions"))
        if isinstance(values, str | Mapping | Set) or not hasattr(values, "__len__") or len(values) != len(items):
            raise TypeError(f"the function returned {_described(values)} for {len(items)} completions; it must return a number for each")
        return [self._scored(value, metrics) for value in values]

    def _given(self, items: Sequence[RewardInput], metrics: dict[str, float]) -> dict[str, Any]:
        names = dict.fromkeys(name for item in items for name in item.columns if name not in _NO_COLUMNS)
        given: dict[str, Any] = {name: [item.columns.get(name) for item in items] for name in names}
        if self._is_text(items[0]):
            given["prompts"] = ["\n\n".join(message.content for message in item.messages) for item in items]
            given["completions"] = [item.text for item in items]
        else:
            given["prompts"] = [_dicts(item.messages) for item in items]
            given["completions"] = [_dicts(_turns(item)) for item in items]
        if all(item.token_ids is not None for item in items):
            given["completion_ids"] = [_ids(item) for item in items]
        elif "completion_ids" in self._function.required:
            raise RuntimeError(f"{self._function.reference} asks for completion_ids, which text that was not sampled here does not have")

        def log_metric(name: str, value: Any) -> None:
            metrics[str(name)] = float(value)

        def log_extra(column: str, values: Any) -> None:
            """Ignore an entry for TRL's table of completions, which rlcore does not have."""

        return given | {"log_metric": log_metric, "log_extra": log_extra}

    def _is_text(self, item: RewardInput) -> bool:
        form = self.options.form
        return form == "text" or (form == "auto" and isinstance(item.columns.get("prompt"), str) and len(item.turns) < 2)

    def _scored(self, value: Any, metrics: Mapping[str, float]) -> Score:
        number = number_or_none(value, "a reward of the list")
        if number is not None:
            return plain_score(number, right=self.options.right, parts=dict(metrics))
        masked = self.options.not_applicable == "mask"
        return Score(value=0.0, reason="the function does not apply", in_statistics=not masked, in_loss=not masked)


def _turns(item: RewardInput) -> tuple[Message, ...]:
    """Return the whole conversation, or only the answer if there is at most one turn and it calls no tool."""
    return item.turns if len(item.turns) > 1 or item.turns[0].tool_calls else (Message(role="assistant", content=item.text),)


def _dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [message.plain() for message in messages]


def _described(values: Any) -> str:
    listed = hasattr(values, "__len__") and not isinstance(values, str | Mapping | Set)
    return f"{len(values)} values" if listed else f"a {type(values).__name__}"


def _ids(item: RewardInput) -> list[int]:
    return [] if item.token_ids is None else [int(token) for token in item.token_ids]
