"""Tests that make the engine: `make test-vllm` runs them in the environment that has it. Elsewhere none of them is collected, since the
engine's packages do not fit beside those of the other plugins."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.serving_fixtures import answered, ask, folder, lent_backends, model, snapshot

__all__ = ["answered", "ask", "backend", "folder", "model", "snapshot"]

collect_ignore_glob = [] if find_spec("vllm") else ["test_*"]


@pytest.fixture
def backend(folder):
    """A function that makes engines: see ``lent_backends``."""
    from rlcore_plugin_vllm.options import VllmOptions
    from rlcore_plugin_vllm.vllm_backend import VllmBackend

    yield from lent_backends(folder, lambda context, options: VllmBackend(context, VllmOptions(**options)))


@pytest.fixture(scope="module")
def shared(folder):
    """One engine for tests that leave it as they found it: with its first weights, and no request in it."""
    from rlcore_plugin_vllm.options import VllmOptions
    from rlcore_plugin_vllm.vllm_backend import VllmBackend

    for make in lent_backends(folder, lambda context, options: VllmBackend(context, VllmOptions(**options))):
        yield make()
