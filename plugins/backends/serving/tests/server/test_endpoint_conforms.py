"""The backend keeps the rules of every inference backend, against real servers of vLLM."""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
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
IN_FLIGHT = {"test_streams", "test_cancel", "test_update_with_requests_in_flight", "test_resumed_tokens_are_of_the_new_weights_alone"}
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
    """With two servers at most, for a start takes half a minute of CPU time."""

    spec = rlcore_register_inference_backends()[0]
    kind, name = "vllm", "wide"
    tokenizer, vocabulary = WIDE, len(WIDE)
    long_tokens = 320

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        servers = shelf(self.kind, self.name)
        backend = LentBackend(self.context(prompts_per_forward), servers.take(), servers)
        update_engine(backend, self.snapshot(0))
        return backend

    def shared(self, prompts_per_forward: int = 8) -> AbstractContextManager[InferenceBackend]:
        """The same one: a server batches as it likes, whatever the producer takes in one forward pass."""
        return super().shared()

    @contextmanager
    def fresh(self) -> Iterator[InferenceBackend]:
        """With a server of an engine that idles, which ends."""
        type(self).teardown_class()
        with super().fresh() as engine:
            yield engine


@needs("vllm")
class TestTied(ServerRules):
    """A server of vLLM, in short: answers are long only where a rule looks at those that a poll or an update finds in flight. A client that
    the machine starves for the length of an answer finds none."""

    long_tokens = 96

    @pytest.fixture(autouse=True)
    def _long_where_it_matters(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in IN_FLIGHT:
            self.long_tokens = ServerRules.long_tokens


@pytest.mark.nightly
@needs("vllm")
class TestOwnHead(ServerRules):
    name = "wide llama"


@pytest.mark.nightly
@needs("sglang")
class TestServedBySglang(ServerRules):
    """A server of SGLang; `make test-sglang` starts it on the CPU."""

    kind = "sglang"
    cuts_twice = False
