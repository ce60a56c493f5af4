"""The runtime ``local`` keeps what every runtime promises, in turns and with processes."""

from __future__ import annotations

from rlcore.testing import RuntimeSuite


class TestLocalRuntime(RuntimeSuite):
    runtime = "local"
