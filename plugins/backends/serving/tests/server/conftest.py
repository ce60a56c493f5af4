"""Tests of the backend `endpoint` against real servers of vLLM: `make test-vllm` names the environment that has it. Elsewhere none of them
is collected."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("RLCORE_TEST_VLLM") else ["test_*"]
