"""What torch says of the device: its name, its memory, and when it has finished. The same calls on a CPU, where there is less to say."""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers

__all__ = [
    "Span",
    "backend_device",
    "card",
    "free",
    "gigabytes",
    "machine",
    "peak_gigabytes",
    "reset_peak",
    "settle",
    "smaller_until_it_fits",
    "timed",
]


def card(device: str) -> str:
    """The card's name, or that of the processor's kind."""
    return torch.cuda.get_device_name(0) if device == "cuda" else f"CPU ({platform.machine()})"


def machine(device: str) -> dict[str, Any]:
    """What a figure depends on besides the code."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}
    found: dict[str, Any] = {"device": device, "card": card(device), **versions, "threads": torch.get_num_threads()}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {"cuda": torch.version.cuda, "memory_gb": round(properties.total_memory / 2**30, 1)}
    return found


def backend_device(device: str) -> str:
    """As a backend's ``device`` setting; one card is all that these parts use."""
    return "cuda:0" if device == "cuda" else "cpu"


def settle(device: str) -> None:
    """Wait until the device has done what it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def free(device: str) -> None:
    """Give back what nobody holds any more, so that the next measurement starts from nothing."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def reset_peak(device: str) -> None:
    """Start a new measurement of the peak."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_gigabytes(device: str) -> float | None:
    """The most memory that tensors took since ``reset_peak``; None on a CPU, where torch does not count."""
    return round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None


def gigabytes(device: str) -> float | None:
    """Memory that this process has taken from the device, tensors and the allocator's reserve; None on a CPU."""
    return round(torch.cuda.memory_reserved() / 2**30, 3) if device == "cuda" else None


@dataclass
class Span:
    """``seconds`` of a body, once it has ended."""

    seconds: float = 0.0


@contextmanager
def timed(device: str) -> Iterator[Span]:
    """Measure a body, the device's work included."""
    span = Span()
    settle(device)
    start = time.perf_counter()
    yield span
    settle(device)
    span.seconds = time.perf_counter() - start


def smaller_until_it_fits(device: str, size: int, attempt: Callable[[int], Any]) -> tuple[int, Any]:
    """(size, ``attempt(size)``), the size halved for as long as the card's memory does not hold it; the last error where 1 does not fit."""
    while True:
        try:
            return size, attempt(size)
        except torch.cuda.OutOfMemoryError:
            if size == 1:
                raise
        free(device)
        size //= 2
