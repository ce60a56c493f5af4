"""The producer's end of a gateway process."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from rlcore_gateway import link as module
from rlcore_gateway.gateway import GatewaySettings
from rlcore_gateway.link import GatewayLink
from rlcore_gateway.link_messages import GatewaySetup
from rlcore_gateway.worker_process import WorkerCommand

from rlcore.testing import FakeTokenizer


def test_a_link_that_is_closed_while_its_process_starts_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    command = WorkerCommand(argv=(sys.executable, "-c", ""))
    setup = GatewaySetup(
        tokenizer=FakeTokenizer("a"), settings=GatewaySettings(), command=command, workers=1, deadline=9.0, cancel_seconds=1.0
    )
    link = GatewayLink("producer-0", setup, lambda text: None)
    real = module.Channel.of

    async def of(end: Any) -> Any:
        link._leave()  # as a call of close does that comes now
        return await real(end)

    monkeypatch.setattr(module.Channel, "of", of)
    link.start()
    link._thread.join(60)
    assert not link._thread.is_alive()
    assert link.process is not None
    assert link.process.poll() is not None
