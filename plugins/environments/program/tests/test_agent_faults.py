"""Producers, gateway processes and drivers that die, stop or are ended while episodes are in flight, in whole runs."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from tests.agent_runs import agent_run, answers, delivered
from tests.integration.ray.faults import BackgroundRun, Outcome, processes_of, until

pytestmark = [pytest.mark.full, pytest.mark.serial]
STEPS = 16
GATEWAY, GUARD = "rlcore_gateway.process", "rlcore_gateway/guard.py"
THINKS = {"in a call": 0.0, "thinking": 1.0}
"""Seconds between the calls of an agent. With 0 nearly every agent waits for the engine at any time."""
