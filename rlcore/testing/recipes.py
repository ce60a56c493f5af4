"""Checks that compare the numbers of recipes and options with a paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from rlcore.contracts.specs import AlgorithmSpec

__all__ = ["assert_option", "recipe_numbers"]


def recipe_numbers(spec: AlgorithmSpec) -> dict[str, Any]:
    """Return the recipe's numeric defaults by path, without ``algorithm.``: ``{"kl_coeff": 0.01, "options.clip_eps_low": 0.2}``."""
    return {path.removeprefix("algorithm."): value for path, (value, _) in spec.defaults.items() if not isinstance(value, str)}


def assert_option(model: type[BaseModel], field: str, default: Any, taken: Sequence[Any], refused: Sequence[Any]) -> None:
    """Assert that an options model has this default for ``field``, takes the values ``taken``, and refuses ``refused``, naming the
    field."""
    assert getattr(model(), field) == default, f"{model.__name__}.{field} is {getattr(model(), field)} by default, not {default}"
    for value in taken:
        assert getattr(model(**{field: value}), field) == value
    for value in refused:
        assert field in _refusal(model, field, value), f"{model.__name__} takes {field} = {value}, or its refusal does not name it"


def _refusal(model: type[BaseModel], field: str, value: Any) -> str:
    """Return the model's refusal of the value; "" if it accepts the value."""
    try:
        model(**{field: value})
    except ValidationError as error:
        return str(error)
    return ""
