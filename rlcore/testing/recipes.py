"""Numbers of recipes and options, for a test that holds them against the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from rlcore.contracts.specs import AlgorithmSpec

__all__ = ["assert_option", "recipe_numbers"]


def recipe_numbers(spec: AlgorithmSpec) -> dict[str, Any]:
    """The recipe's defaults that are no words, by path, without ``algorithm.``: ``{"kl_coeff": 0.01, "options.clip_eps_low": 0.2}``."""
    return {path.removeprefix("algorithm."): value for path, (value, _) in spec.defaults.items() if not isinstance(value, str)}


def assert_option(model: type[BaseModel], field: str, default: Any, taken: Sequence[Any], refused: Sequence[Any]) -> None:
    """An options model gives ``field`` its default, takes the values at its bounds, and refuses, naming it, those beyond."""
    assert getattr(model(), field) == default, f"{model.__name__}.{field} is {getattr(model(), field)} by default, not {default}"
    for value in taken:
        assert getattr(model(**{field: value}), field) == value
    for value in refused:
        assert field in _refusal(model, field, value), f"{model.__name__} takes {field} = {value}, or its refusal does not name it"


def _refusal(model: type[BaseModel], field: str, value: Any) -> str:
    """What the model says against the value; "" where it takes it."""
    try:
        model(**{field: value})
    except ValidationError as error:
        return str(error)
    return ""
