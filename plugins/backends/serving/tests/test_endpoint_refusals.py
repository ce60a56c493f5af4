"""What a server must be when a producer meets it, what a run must say, and updates that servers do not take."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_servers import FakeServer, weights
from rlcore_plugin_serving import rlcore_check_run

from rlcore.api import ConfigError, RunError, WeightsError
from rlcore.testing import update_engine

KINDS = pytest.mark.parametrize("kind", ["vllm", "sglang"])


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ({"kind": "nothing"}, "neither a vLLM nor an SGLang server"),
        ({"tokens": False}, "takes no token ids .* start it with: .*vllm serve MODEL --enable-scale-out"),
        ({"raw": True}, "log probabilities of another distribution .* --logprobs-mode processed_logprobs"),
        ({"raw": True, "kind": "sglang"}, "log probabilities of another distribution .* sglang.launch_server"),
        ({"max_tokens": 100}, "takes 100 tokens of prompt and answer together, but the run needs 256; .*--max-model-len"),
        ({"vocabulary": 41}, "knows fewer tokens than the 42"),
        ({"vocabulary": 50, "kind": "sglang"}, "knows more tokens than the 42"),
        ({"key": "secret"}, "refuses the key .*inference.options.api_key_env"),
        ({"key": "secret", "kind": "sglang"}, "refuses the key"),
    ],
)
def test_a_server_that_a_producer_cannot_use_is_refused(server, backend, behaviour, says):
    with pytest.raises(ConfigError, match=says):
        backend(server(**behaviour))


@KINDS
def test_a_key_is_read_from_the_environment(kind, server, backend, ask, answered, monkeypatch):
    monkeypatch.setenv("SERVER_KEY", "secret")
    engine = backend(server(kind=kind, key="secret"), api_key_env="SERVER_KEY")
    engine.submit(ask(1))
    answered(engine, 1)
    monkeypatch.delenv("SERVER_KEY")
    with pytest.raises(ConfigError, match=r"environment variable SERVER_KEY, which is not set"):
        backend(server(kind=kind, key="secret"), api_key_env="SERVER_KEY")


def test_nobody_there_is_said_with_the_address_after_the_wait(server, backend):
    gone = server()
    gone.stop()
    with pytest.raises(ConfigError, match=rf"no server .* was healthy within 0.3 s .*{gone.port}: ConnectError"):
        backend(gone, start_seconds=0.3)


def test_a_server_that_is_late_is_waited_for(server, backend, ask, answered):
    late = server()
    late.stop()
    threading.Timer(0.8, late.start).start()
    engine = backend(late)
    engine.submit(ask(1))
    answered(engine, 1)


def test_a_server_without_orders_for_weights_answers_and_scores_alone(server, backend, ask, answered):
    engine = backend(server(development=False))
    engine.submit(ask(2))
    assert len(answered(engine, 2)) == 2
    assert len(engine.score([3, 4, 5])) == 2
    with pytest.raises(
        WeightsError, match=r"takes no weights, so it can be used for evaluation and scoring only; start it with: VLLM_SERVER_DEV"
    ):
        update_engine(engine, weights(1))
    engine.submit(ask(3)[2:])
    answered(engine, 1)


def test_without_a_folder_no_weights_are_taken(server, backend):
    engine = backend(server(), shared_folder=None)
    with pytest.raises(WeightsError, match=r"inference.options.shared_folder names no folder"):
        update_engine(engine, weights(1))


def test_a_server_that_holds_part_of_a_version_is_of_no_use_without_weights(server, backend):
    with pytest.raises(ConfigError, match="only partly written"):
        backend(server(label="unfinished-rlcore-1"), shared_folder=None)
    backend(server(label="unfinished-rlcore-1"))


def test_a_server_that_was_left_paused_goes_on(server, backend, ask, answered):
    fake = server()
    fake.paused = True
    engine = backend(fake)
    engine.submit(ask(1))
    answered(engine, 1)


@KINDS
def test_a_server_that_cannot_read_the_version_ends_the_update_and_is_named(kind, server, backend):
    fake = server(kind=kind, refuse_loading="no such folder")
    engine = backend(fake)
    with pytest.raises(WeightsError, match=rf"{fake.port} does not load the weights: .*no such folder.*shared_folder_there"):
        update_engine(engine, weights(1))
    with pytest.raises(RunError, match="unfinished version 1"):
        engine.score([3, 4])


@KINDS
def test_servers_that_hold_other_weights_after_one_version_are_told_apart(kind, server, backend):
    one, other = server(kind=kind), server(kind=kind, sums="other")
    engine = backend(one, other)
    with pytest.raises(WeightsError, match=rf"{other.port} holds other weights than .*{one.port} after both read version 1: '.*w' differs"):
        update_engine(engine, weights(1))


@KINDS
def test_a_server_that_says_it_has_loaded_and_has_not_is_found(kind, server, backend):
    fake = server(kind=kind)
    engine = backend(fake)
    update_engine(engine, weights(1))
    update_engine(engine, weights(2, number=1))  # the same tensors may have the same checksums
    fake.behaviour.sums = fake.file
    with pytest.raises(WeightsError, match="holds the same weights as before, although version 3 has others"):
        update_engine(engine, weights(3))


def test_weights_that_are_rounded_on_the_way_may_stay_the_same(server, backend):
    fake = server(dtype="bfloat16")
    engine = backend(fake)
    update_engine(engine, weights(1))
    fake.behaviour.sums = fake.file
    assert update_engine(engine, weights(2)) == 2


def test_an_order_is_tried_again_where_a_connection_breaks(server, backend):
    fake = server()
    engine = backend(fake)
    fake.behaviour.drop_connections = 3
    assert update_engine(engine, weights(1)) == 1


def until_it_fails(engine) -> None:
    """Poll, for some seconds."""
    for _ in range(100):
        engine.poll(0.1)


def test_an_answer_is_asked_for_once(server, backend, ask):
    fake = server()
    engine = backend(fake)
    fake.behaviour.drop_connections = 1
    engine.submit(ask(1))
    with pytest.raises(RunError, match="is left"):
        until_it_fails(engine)


def test_only_the_version_that_is_served_is_kept_and_nothing_after_the_end(server, backend, tmp_path: Path):
    engine = backend(server())
    for version in (1, 2, 3):
        update_engine(engine, weights(version))
    (folder,) = (tmp_path / "shared").iterdir()
    assert [path.name[:9] for path in folder.iterdir() if path.is_dir()] == ["version-3"]
    engine.close()
    assert not list((tmp_path / "shared").iterdir())


def test_what_a_killed_producer_left_is_removed_and_what_a_living_one_has_is_kept(server, backend, tmp_path: Path):
    backend(server())
    (kept,) = (tmp_path / "shared").iterdir()
    left = tmp_path / "shared" / "rlcore-left"
    (left / "version-1").mkdir(parents=True)
    (left / "owner").touch()
    backend(server())
    assert not left.exists()
    assert kept.exists()


def test_the_folder_has_the_name_that_servers_know(server, backend, tmp_path: Path):
    there = tmp_path / "there"
    engine = backend(server(), shared_folder_there=str(there))
    with pytest.raises(WeightsError, match=rf"no such folder: {there}/rlcore-"):
        update_engine(engine, weights(1))
    there.symlink_to(tmp_path / "shared")
    assert update_engine(engine, weights(2)) == 2


def test_producers_have_servers_of_their_own(server, backend):
    servers = [server() for _ in range(3)]
    own = [[known.address for known in backend(*servers, producer=k, producers=2)._served._servers] for k in (0, 1)]
    assert own == [[servers[0].address, servers[2].address], [servers[1].address]]
    with pytest.raises(ConfigError, match=r"names 1 servers for 2 producers.* type -i 1"):
        backend(servers[0], producer=1, producers=2)


def problems(producers: int = 1, name: str = "endpoint", data: tuple[str, ...] = ("train.jsonl",), **options) -> list[str]:
    return rlcore_check_run(
        SimpleNamespace(
            data=SimpleNamespace(sources=data),
            weights=SimpleNamespace(transport="auto"),
            inference=SimpleNamespace(name=name, options=options, num_inferencer=producers),
        )
    )


def test_a_run_is_refused_before_it_starts(tmp_path: Path):
    one, two = "http://a:1", "http://b:1"
    assert problems(name="vllm") == []
    assert problems(addresses=[one, two], shared_folder=str(tmp_path), producers=2) == []
    assert "1 servers for 2 producers" in problems(addresses=[one], shared_folder=str(tmp_path), producers=2)[0]
    assert "twice" in problems(addresses=[one, one], shared_folder=str(tmp_path))[0]
    assert "shared_folder is not set" in problems(addresses=[one])[0]
    assert problems(addresses=[one], data=()) == [], "nothing is trained, so no weights need a way"
    assert "is not a folder here" in problems(addresses=[one], shared_folder=str(tmp_path / "none"))[0]


def test_what_sglang_would_cut_otherwise_is_refused(server, backend, ask, answered):
    engine = backend(server(kind="sglang"))
    for sampling, says in (
        ({"top_k": 4, "top_p": 0.9}, "type only one"),
        ({"top_k": 9}, "sampling-mask-max-tokens .8."),
        ({"top_p": 0.9}, "sampling-mask-max-tokens"),
    ):
        with pytest.raises(ConfigError, match=says):
            engine.submit(ask(1, **sampling))
    engine.submit(ask(1, top_k=4))
    assert answered(engine, 1)["r0"].logprobs.tolist() == [0.0] * 20


def test_what_vllm_would_sample_otherwise_is_refused(server, backend, ask):
    engine = backend(server())
    with pytest.raises(ConfigError, match=r"vLLM samples at 0.01 to 2"):
        engine.submit(ask(1, temperature=3.0))


def test_a_port_that_is_no_http_server_is_waited_for_and_named(backend):
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(ConfigError, match=r"it did not answer /health for 0.3 s"):
            backend(FakeServer(port=mute.getsockname()[1]), start_seconds=0.5, silence_seconds=0.3)
