"""Tests of the backend `endpoint` against real servers of vLLM: `make test-vllm` names the environment that has it. Elsewhere none of them
is collected."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from vllm_servers import ENVIRONMENT

collect_ignore_glob = [] if ENVIRONMENT else ["test_*"]
