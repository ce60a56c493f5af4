"""Temperatures that vLLM samples at: it raises a lower one to 0.01 with a warning, and refuses a higher one when a request comes."""

from __future__ import annotations

from typing import Any

__all__ = ["COLDEST", "HOTTEST", "temperature_problem", "unsupported"]

COLDEST, HOTTEST = 0.01, 2.0
"""vllm/sampling_params.py of 0.32: ``_MAX_TEMP``, and the check of ``_verify_args``."""


def unsupported(temperature: float) -> bool:
    """Whether vLLM would not sample at this temperature. 0 is greedy, and served."""
    return temperature != 0 and not COLDEST <= temperature <= HOTTEST  # a temperature that is no number is not served either


def temperature_problem(config: Any) -> str:
    """Return a sentence on a temperature that vLLM does not sample at, of a run whose engine is vLLM; "" if it serves all of them."""
    asked = {
        "--temperature": config.sampling.temperature,
        "--temperature-end": config.sampling.temperature_end,
        "--eval-temperature": config.eval.eval_temperature,
    }
    flag = next((flag for flag, value in asked.items() if value is not None and unsupported(value)), "")
    return f"{flag} {asked[flag]:g}: vLLM samples at {COLDEST:g} to {HOTTEST:g}; type one of these, or another --backend" if flag else ""
