"""Read data files into checked prompts: parsing, validation with ``file:line``, and mixing. Imports neither torch nor transformers."""

from rlcore.data.dataset import DataSet
from rlcore.data.endless import EndlessPrompts, Prompts, prompt_at, prompt_count
from rlcore.data.prompts import (
    EndlessDataError,
    check_end,
    check_prompt_lengths,
    load_eval,
    load_prompts,
    short_prompts,
    with_system_prompt,
)

__all__ = [
    "DataSet",
    "EndlessDataError",
    "EndlessPrompts",
    "Prompts",
    "check_end",
    "check_prompt_lengths",
    "load_eval",
    "load_prompts",
    "prompt_at",
    "prompt_count",
    "short_prompts",
    "with_system_prompt",
]
