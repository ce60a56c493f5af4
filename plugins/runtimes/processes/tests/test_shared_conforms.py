"""The transfer keeps the rules that rlcore asks of every one."""

from __future__ import annotations

from rlcore_plugin_processes.shared import SharedTransfer

from rlcore.api.weights import WeightTransfer
from rlcore.testing import WeightTransferSuite


class TestShared(WeightTransferSuite):
    def make(self) -> WeightTransfer:
        return SharedTransfer()
