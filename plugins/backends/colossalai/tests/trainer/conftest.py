"""Tests that train by ColossalAI: `make test-colossalai` runs them in the environment that has it. Elsewhere none of them is collected,
since its packages do not fit beside those of the other plugins."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("colossalai") else ["test_*"]
