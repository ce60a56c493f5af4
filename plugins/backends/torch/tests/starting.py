"""How processes of these tests start a backend, and what they say of what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_torch.options import TorchOptions

from rlcore.api import RlcoreError, TrainingContext

__all__ = ["error_of", "started"]


def started(context: TrainingContext, kind: type[TorchBackend] = TorchBackend, **options: Any) -> TorchBackend:
    """Set up, with one thread; closed if that fails, so that the process can go on."""
    backend = kind(context, TorchOptions(threads=1, ranks_deadline=60.0, **options))
    try:
        backend.setup(context)
    except BaseException:
        backend.close()
        raise
    return backend


def error_of(action: Callable[[], Any]) -> str:
    """Kind and text of the error that it ends with; "" for none."""
    try:
        action()
    except (RlcoreError, ZeroDivisionError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
