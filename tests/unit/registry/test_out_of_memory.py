"""Memory that runs out is one sentence that says what to lower, whatever a library calls it."""

from __future__ import annotations

import pytest
import torch

from rlcore.contracts.errors import ConfigError, RunError
from rlcore.registry.error_context import error_context
from rlcore.runtime.loading import loading

ERRORS = (
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."),
    RuntimeError("CUDA error: out of memory"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_memory_that_runs_out_names_what_to_lower_without_a_traceback(error: Exception) -> None:
    with (
        pytest.raises(RunError, match=r"^the engine ran out of memory while generating \(.*\); lower -imbs$") as said,
        error_context("the engine", "generating", "lower -imbs"),
    ):
        raise error
    assert said.value.__cause__ is None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_model_that_does_not_fit_is_not_called_damaged(error: Exception) -> None:
    with pytest.raises(ConfigError, match=r"^model m does not fit into memory .* name a smaller -m"), loading("model m"):
        raise error


def test_memory_of_another_rank_names_what_to_lower_too() -> None:
    with (
        pytest.raises(RunError, match=r"^trainer rank 1 failed: OutOfMemoryError: CUDA; lower -tmbs$"),
        error_context("a", "b", "lower -tmbs"),
    ):
        raise RunError("trainer rank 1 failed: OutOfMemoryError: CUDA")


def test_a_failure_of_another_kind_is_told_as_before() -> None:
    with (
        pytest.raises(RunError, match=r"^the engine failed while generating: ValueError: x$"),
        error_context("the engine", "generating", "less"),
    ):
        raise ValueError("x")


@pytest.mark.parametrize(
    "said", ["I/O error: No space left on device (os error 28)", "[enforce fail] PytorchStreamWriter failed writing file"]
)
def test_a_full_disk_needs_no_traceback(said: str) -> None:
    with pytest.raises(RunError, match=r"^the trainer failed while saving: ") as told, error_context("the trainer", "saving"):
        raise RuntimeError(said)
    assert told.value.__cause__ is None
