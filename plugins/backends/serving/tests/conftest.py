"""Makes the fake servers that these tests share importable by name, and lends them a producer of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_servers import SHAPES, VOCABULARY, Behaviour, FakeServer

from rlcore.api import InferenceContext, Request, Sampling
from rlcore.testing import FakeTokenizer


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a configuration and tensors of nothing."""
    from safetensors.numpy import save_file

    folder = tmp_path / "model"
    folder.mkdir()
    save_file({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY, "tie_word_embeddings": False}))
    return folder


@pytest.fixture
def server():
    """A function that starts a fake server: ``server(kind="sglang", pace=0.1)``."""
    made: list[FakeServer] = []

    def make(**behaviour) -> FakeServer:
        made.append(FakeServer(Behaviour(**behaviour)).start())
        return made[-1]

    yield make
    for fake in made:
        if not fake.gone:
            fake.stop()


@pytest.fixture
def backend(model: Path, tmp_path: Path):
    """A function that makes a producer's backend over these servers."""
    from rlcore_plugin_serving.endpoint_backend import EndpointBackend
    from rlcore_plugin_serving.endpoint_options import EndpointOptions

    made: list[EndpointBackend] = []
    shared = tmp_path / "shared"
    shared.mkdir()

    def make(*servers: FakeServer, max_tokens: int = 256, producer: int = 0, producers: int = 1, **options) -> EndpointBackend:
        tokenizer = FakeTokenizer()
        context = InferenceContext(
            model=str(model), tokenizer=tokenizer, prompts_per_forward=8, max_tokens=max_tokens, producer=producer, producers=producers
        )
        asked = {"shared_folder": shared, "start_seconds": 5.0, "silence_seconds": 5.0, **options}
        made.append(EndpointBackend(context, EndpointOptions(addresses=tuple(server.address for server in servers), **asked)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def ask():
    """A function that makes requests ``r0`` to ``r<n-1>``."""

    def make(count: int, *, tokens: int = 20, **sampling) -> list[Request]:
        return [
            Request(request_id=f"r{n}", token_ids=[3, 5], sampling=Sampling(max_new_tokens=tokens, **sampling), noise=(0, 0, 0, n))
            for n in range(count)
        ]

    return make


@pytest.fixture
def answered():
    """A function that polls until so many completions have come."""

    def run(engine, wanted: int) -> dict:
        found: dict = {}
        for _ in range(600):
            if len(found) >= wanted:
                return found
            for completion in engine.poll(0.05):
                assert completion.request_id not in found, "answered twice"
                found[completion.request_id] = completion
        raise AssertionError(f"{len(found)} of {wanted} came")

    return run
