"""Services that judge, on ports of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from judging_service import Answer, JudgingService  # beside this file


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[dict[str, Any]], Answer]], JudgingService]]:
    """Starts a service that answers by a rule; all are ended afterwards."""
    monkeypatch.setenv("no_proxy", "*")
    services: list[JudgingService] = []

    def serve(rule: Callable[[dict[str, Any]], Answer]) -> JudgingService:
        services.append(JudgingService(rule))
        return services[-1]

    yield serve
    for service in services:
        service.__exit__()
