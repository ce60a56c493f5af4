"""Real servers of vLLM that lack something, that are killed and started again, and that hold other weights than they say."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import numpy as np
import pytest
from rlcore_plugin_serving.endpoint_backend import EndpointBackend
from rlcore_plugin_serving.endpoint_options import EndpointOptions
from test_endpoint_conforms import needs, shared, shelf

from rlcore.api import ConfigError, InferenceContext, Request, RunError, Sampling, WeightsError
from rlcore.testing import update_engine
from tests.engine_servers import EngineServer, vllm_server
from tests.serving_rules import WIDE, folder_of, snapshot_of

pytestmark = [pytest.mark.timeout(900), needs("vllm")]
SEQUENCE = np.arange(3, 40, dtype=np.int32)


@pytest.fixture
def servers():
    """A function that lends so many servers, which run again afterwards."""
    lent: list[EngineServer] = []

    def lend(count: int) -> list[EngineServer]:
        lent.extend(shelf("vllm", "wide").take() for _ in range(count))
        return lent

    yield lend
    for server in lent:
        if not server.runs:
            server.start()
        server.wait()
        shelf("vllm", "wide").give(server)


@pytest.fixture
def connect():
    """A function that makes a backend over servers."""
    made: list[EndpointBackend] = []

    def make(*servers: EngineServer, **options) -> EndpointBackend:
        context = InferenceContext(model=str(folder_of("wide")), tokenizer=WIDE, prompts_per_forward=8, max_tokens=384)
        asked = {"shared_folder": shared(), "start_seconds": 300.0, **options}
        made.append(EndpointBackend(context, EndpointOptions(addresses=tuple(server.address for server in servers), **asked)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def started(tmp_path: Path):
    """A function that starts a server of its own: ``started("--logprobs-mode", "raw_logprobs", VLLM_SERVER_DEV_MODE="0")``."""
    made: list[EngineServer] = []

    def make(*words: str, **settings: str) -> EngineServer:
        server = vllm_server(
            Path(os.environ["RLCORE_TEST_VLLM"]), folder_of("wide"), tmp_path / "server.log", words=words, settings=settings
        )
        made.append(server)
        server.start()
        server.wait()
        return server

    yield make
    for server in made:
        server.kill()


def requests(count: int, tokens: int = 120, start: int = 0) -> list[Request]:
    return [
        Request(request_id=f"r{n}", token_ids=[3, 5 + n], sampling=Sampling(max_new_tokens=tokens), noise=(0, 0, 0, n))
        for n in range(start, start + count)
    ]


def answers(engine: EndpointBackend, wanted: int) -> dict:
    found: dict = {}
    while len(found) < wanted:
        for completion in engine.poll(5.0):
            assert completion.request_id not in found, "answered twice"
            found[completion.request_id] = completion
    return found


def post(server: EngineServer, path: str, body: dict) -> None:
    """An order of somebody who is not the producer."""
    asked = HttpRequest(f"{server.address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(asked, timeout=60):
        pass


def test_a_server_that_is_killed_in_mid_answer_is_replaced_by_the_other_and_joins_again(servers, connect):
    killed, whole = servers(2)
    engine = connect(whole)
    update_engine(engine, snapshot_of("wide", 1))
    engine.submit(requests(8))
    expected = {name: completion.token_ids.tolist() for name, completion in answers(engine, 8).items()}
    engine.close()
    engine = connect(killed, whole)
    update_engine(engine, snapshot_of("wide", 1))
    engine.submit(requests(8))
    found = {completion.request_id: completion for completion in engine.poll(0.05)}  # a quick server has some by now
    killed.kill()
    found |= answers(engine, 8 - len(found))
    assert {name: completion.token_ids.tolist() for name, completion in found.items()} == expected
    assert all((completion.versions == 1).all() for completion in found.values())
    killed.start()
    killed.wait()
    engine.submit(requests(2, 5))
    assert len(answers(engine, 2)) == 2
    assert [server.address for server in engine._served._streams.healthy] == [whole.address]
    version = 1
    while len(engine._served._streams.healthy) < 2 and version < 12:  # one that has just started may be too slow for the first update
        version += 1
        update_engine(engine, snapshot_of("wide", version))
    assert [server.address for server in engine._served._streams.healthy] == [killed.address, whole.address]
    engine.submit(requests(8))
    assert all((completion.versions == version).all() for completion in answers(engine, 8).values())
    assert np.isfinite(engine.score(SEQUENCE)).all()


@pytest.mark.nightly  # fakes have it each time
def test_the_only_server_is_killed_and_the_next_producer_waits_for_it(servers, connect):
    (only,) = servers(1)
    engine = connect(only)
    update_engine(engine, snapshot_of("wide", 1))
    before = engine.score(SEQUENCE)
    engine.submit(requests(4))
    engine.poll(0.05)
    only.kill()
    with pytest.raises(RunError, match=rf"no server .* is left .{only.address}: "):
        answers(engine, 4)
    engine.close()
    only.start()
    engine = connect(only)
    update_engine(engine, snapshot_of("wide", 1))
    assert np.allclose(engine.score(SEQUENCE), before, atol=1e-4)


@pytest.mark.nightly  # fakes have it each time
def test_a_server_that_was_started_anew_between_two_requests_is_not_believed(servers, connect):
    (only,) = servers(1)
    engine = connect(only)
    update_engine(engine, snapshot_of("wide", 1))
    only.kill()
    only.start()
    only.wait()
    engine.submit(requests(2))
    with pytest.raises(RunError, match=r"answers with weights 'default', but 'rlcore-.*-1' are served"):
        answers(engine, 2)


def test_weights_that_somebody_else_has_written_are_found_by_the_probe_and_by_the_label(servers, connect, tmp_path: Path):
    one, other = servers(2)
    engine = connect(one, other)
    update_engine(engine, snapshot_of("wide", 1))
    before = engine.score(SEQUENCE)
    alien = connect(other)
    update_engine(alien, snapshot_of("wide", 2))
    label = engine._served._servers[1].label
    post(other, "/update_weight_version", {"new_version": label})  # it says that it serves what it was given
    with pytest.raises(WeightsError, match=rf"{other.address} serves version 1 as {one.address} does, but its log probabilities differ"):
        engine.score(SEQUENCE)
    post(other, "/update_weight_version", {"new_version": "alien"})
    assert np.array_equal(engine.score(SEQUENCE), before)
    assert "'alien'" in engine._served._servers[1].why


@pytest.mark.full
@pytest.mark.nightly  # fakes have it each time
def test_raw_log_probabilities_are_refused(started, connect):
    server = started("--logprobs-mode", "raw_logprobs")
    with pytest.raises(ConfigError, match=r"of another distribution .* --logprobs-mode processed_logprobs"):
        connect(server)


@pytest.mark.full
@pytest.mark.nightly  # fakes have it each time
def test_without_development_endpoints_a_server_with_a_key_scores_and_answers_alone(started, connect, monkeypatch):
    server = started("--api-key", "secret", VLLM_SERVER_DEV_MODE="0")
    with pytest.raises(ConfigError, match="refuses the key"):
        connect(server)
    monkeypatch.setenv("SERVER_KEY", "secret")
    engine = connect(server, api_key_env="SERVER_KEY", shared_folder=None)
    engine.submit(requests(2, 8))
    assert all((completion.versions == 0).all() for completion in answers(engine, 2).values())
    assert np.isfinite(engine.score(SEQUENCE)).all()
    with pytest.raises(WeightsError, match="evaluation and scoring only"):
        update_engine(engine, snapshot_of("wide", 1))


@pytest.mark.full
@pytest.mark.nightly  # fakes have it each time
def test_another_model_and_too_short_a_context_are_refused(started, connect, tmp_path: Path):
    server = started()
    other = shutil.copytree(folder_of("wide"), tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    for vocabulary, says in ((config["vocab_size"] + 1, "knows fewer tokens"), (config["vocab_size"] - 1, "knows more tokens")):
        (other / "config.json").write_text(json.dumps({**config, "vocab_size": vocabulary}))
        context = InferenceContext(model=str(other), tokenizer=WIDE, prompts_per_forward=8, max_tokens=384)
        with pytest.raises(ConfigError, match=says):
            EndpointBackend(context, EndpointOptions(addresses=(server.address,)))
    context = InferenceContext(model=str(folder_of("wide")), tokenizer=WIDE, prompts_per_forward=8, max_tokens=400)
    with pytest.raises(ConfigError, match=r"takes 384 tokens .* the run asks for 400"):
        EndpointBackend(context, EndpointOptions(addresses=(server.address,)))
