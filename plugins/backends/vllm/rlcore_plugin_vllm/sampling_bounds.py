"""Temperatures that vLLM supports: it raises a lower one to 0.01 with a warning, and refuses a request with a higher one."""

from __future__ import annotations

from typing import Any

__all__ = ["COLDEST", "HOTTEST", "temperature_problem", "unsupported"]

COLDEST, HOTTEST = 0.01, 2.0
"""From vllm/sampling_params.py of 0.32: ``_MAX_TEMP``, and the check of ``_verify_args``."""


def unsupported(temperature: float) -> bool:
    """Return whether vLLM would not sample at this temperature. 0 means greedy, and is supported."""
    return temperature != 0 and not COLDEST <= temperature <= HOTTEST  # a temperature that is NaN is not supported either


def temperature_problem(config: Any) -> str:
    """Return a sentence on a temperature at which vLLM does not sample, for a run whose engine is vLLM; "" if it supports all of them."""
    asked = {
        "--temperature": config.sampling.temperature,
        "--temperature-end": config.sampling.temperature_end,
        "--eval-temperature": config.eval.eval_temperature,
    }
    flag = next((flag for flag, value in asked.items() if value is not None and unsupported(value)), "")
    return f"{flag} {asked[flag]:g}: vLLM samples at {COLDEST:g} to {HOTTEST:g}; type one of these, or another --backend" if flag else ""
