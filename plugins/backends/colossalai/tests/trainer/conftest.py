"""Tests that train by ColossalAI: `make test-colossalai` runs them in the environment that has it. Elsewhere none of them is collected,
since its packages do not fit beside those of the other plugins."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.warm_ranks import warm_ranks

collect_ignore_glob = [] if find_spec("colossalai") else ["test_*"]


@pytest.fixture(scope="module", autouse=True)
def _warm_ranks() -> Iterator[None]:
    with warm_ranks("rlcore_plugin_colossalai.colossal_backend", "transformers.models.llama.modeling_llama"):
        yield
