"""Tests of the backend `endpoint` against real servers: `make test-vllm` and `make test-sglang` name the environments that have them.
Elsewhere none of them is collected."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore_glob = [] if {"RLCORE_TEST_VLLM", "RLCORE_TEST_SGLANG"} & set(os.environ) else ["test_*"]
