"""The backend keeps the rules of every inference backend, against real servers of vLLM."""

from __future__ import annotations

import atexit
import os
import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from rlcore_plugin_serving import rlcore_register_inference_backends
from rlcore_plugin_serving.endpoint_backend import EndpointBackend
from rlcore_plugin_serving.endpoint_options import EndpointOptions

from rlcore.api import InferenceBackend, InferenceContext
from rlcore.testing import update_engine
from tests.engine_servers import EngineServer, ServerShelf, sglang_server, vllm_server
from tests.serving_rules import WIDE, ServingRules, folder_of

pytestmark = pytest.mark.timeout(900)
ENVIRONMENTS = {"vllm": "RLCORE_TEST_VLLM", "sglang": "RLCORE_TEST_SGLANG"}


def needs(kind: str):
    """A mark: skipped where nothing names the environment."""
    return pytest.mark.skipif(not os.environ.get(ENVIRONMENTS[kind]), reason=f"needs the environment of {kind}: make test-{kind} names it")


@lru_cache
def shared() -> Path:
    """Where versions of the weights lie, and logs of servers."""
    made = Path(mkdtemp(prefix="rlcore-test-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@lru_cache
def shelf(kind: str, name: str) -> ServerShelf:
    """Servers of vLLM or SGLang."""
    environment = Path(os.environ[ENVIRONMENTS[kind]])

    def make(number: int) -> EngineServer:
        log, model = shared() / f"{kind}-{name}-{number}.log".replace(" ", "-"), folder_of(name)
        return vllm_server(environment, model, log) if kind == "vllm" else sglang_server(environment, model, log, emptied(log))

    made = ServerShelf(make)
    atexit.register(made.close)
    return made


def emptied(log: Path) -> Path:
    packages = log.with_suffix(".packages")
    packages.mkdir()
    return packages


class LentBackend(EndpointBackend):
    """Gives its server back when it is closed."""

    def __init__(self, context: InferenceContext, server: EngineServer, lent: ServerShelf, **options: Any) -> None:
        self.server, self._lent = server, lent
        super().__init__(context, EndpointOptions(addresses=(server.address,), shared_folder=shared(), **options))

    def close(self) -> None:
        super().close()
        self._lent.give(self.server)


class ServerRules(ServingRules):
    spec = rlcore_register_inference_backends()[0]
    kind, name = "vllm", "wide"
    tokenizer, vocabulary = WIDE, len(WIDE)
    long_tokens = 320

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        servers = shelf(self.kind, self.name)
        backend = LentBackend(self.context(prompts_per_forward), servers.take(), servers)
        update_engine(backend, self.snapshot(0))
        return backend


@pytest.mark.nightly  # the rules of streams need a client that is not starved
@needs("vllm")
class TestTied(ServerRules):
    """A server of vLLM."""


@pytest.mark.nightly
class TestOwnHead(TestTied):
    name = "wide llama"


@pytest.mark.nightly
@needs("sglang")
class TestServedBySglang(ServerRules):
    """A server of SGLang; `make test-sglang` starts it on the CPU."""

    kind = "sglang"
    cuts_twice = False
